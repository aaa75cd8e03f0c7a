"""The engine's thread: it alone touches torch and the scheduler. Others hand it commands and are told events.

Commands go into an inbox; the loop runs scheduler iterations while there is work and sleeps otherwise. An error outside
any one request's step is the engine's death: every request fails loudly, and nothing is accepted any more.
"""

import gc
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from hemiola.core.errors import EngineDied, HemiolaError
from hemiola.core.events import Event, Failed, Final
from hemiola.core.request import Request
from hemiola.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

_IDLE_WAIT_S = 0.05  # how soon something outside (a mask, a worker) is looked at again when nothing else moves


class EngineLoop:
    """Runs a scheduler on a thread of its own.

    Args:
        build: makes the scheduler, on the loop's thread, given the sink for events. What it raises, `start` raises.
        deliver: told every event, in order, on the loop's thread; must not block.
        on_idle: called when everything has ended (integrity checks).
        on_step: called after every iteration, before the loop waits: what was delivered may go out together.
    """

    def __init__(
        self,
        build: Callable[[Callable[[Event], None]], Scheduler],
        deliver: Callable[[Event], None],
        on_idle: Callable[[], None] = lambda: None,
        num_threads: int | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._build = build
        self._deliver_event = deliver
        self._on_idle = on_idle
        self._on_step = on_step
        self._num_threads = num_threads
        self._inbox: deque[Callable[[Scheduler], object]] = deque()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._unfinished: set[str] = set()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hemiola-engine", daemon=True)

    def start(self) -> None:
        """Builds and starts; returns when the engine takes requests."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    @property
    def error(self) -> BaseException | None:
        """What the loop died of."""
        return self._error

    def submit(self, request: Request) -> None:
        """Queues a request. Raises EngineDied if nobody will serve it: the engine has died or was closed."""
        self._post(lambda scheduler: scheduler.submit(request), request.id)

    def abort(self, request_id: str) -> None:
        """Ends a request with Failed(`request_aborted`), if it has not ended."""
        self._post(lambda scheduler: scheduler.abort(request_id))

    def finish(self, request_id: str) -> None:
        """Ends a request well, if it has not ended: its answer is complete as it is."""
        self._post(lambda scheduler: scheduler.finish(request_id))

    def end_program(self, program: str) -> None:
        """Of a program nothing is left and nothing will come: what was kept for it may go."""
        self._post(lambda scheduler: scheduler.end_program(program))

    def call(self, function: Callable[[Scheduler], object]) -> None:
        """Runs something on the loop's thread between two iterations."""
        self._post(function)

    def ask(self, function: Callable[[Scheduler], object]) -> None:
        """The same, and waits until it has run.

        Raises:
            EngineDied: it will not.
        """
        is_done = threading.Event()

        def run(scheduler: Scheduler) -> None:
            function(scheduler)
            is_done.set()

        self._post(run)
        while not is_done.wait(_IDLE_WAIT_S):
            if not self._thread.is_alive() and not is_done.is_set():
                raise EngineDied(f"The engine died: {self._error}")

    def is_called(self) -> bool:
        """Whether somebody wants something that the loop has not seen."""
        return bool(self._inbox) or self._is_stopping

    def stop(self, timeout: float | None = 10.0) -> None:
        """Aborts what runs and ends the thread."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if self._error is not None:  # where it was raised is over; nobody keeps the engine's memory by knowing of it
            traceback.clear_frames(self._error.__traceback__)

    def _post(self, command: Callable[[Scheduler], object], request_id: str | None = None) -> None:
        with self._wake:
            if self._error is not None or self._is_stopping:
                closed = "The engine was closed and is not running any more."
                raise EngineDied(f"The engine died: {self._error}" if self._error else closed)
            if request_id is not None:
                self._unfinished.add(request_id)
            self._inbox.append(command)
            self._wake.notify()

    def _deliver(self, event: Event) -> None:
        if isinstance(event, Final):
            self._unfinished.discard(event.request_id)
        self._deliver_event(event)

    def _run(self) -> None:
        try:
            if self._num_threads is not None:
                torch.set_num_threads(self._num_threads)
            with torch.inference_mode():
                scheduler = self._build(self._deliver)
                with _frozen():
                    self._started.set()
                    self._serve(scheduler)
        except BaseException as error:
            if self._started.is_set() or not isinstance(error, HemiolaError):
                log.exception("The engine died.")
            with self._wake:
                self._error = error
            self._fail_all(f"The engine died: {type(error).__name__}: {error}")
            self._started.set()

    def _serve(self, scheduler: Scheduler) -> None:
        was_idle = True
        while not self._is_stopping:
            while self._inbox:
                self._inbox.popleft()(scheduler)
            moved = scheduler.step()
            self._on_step()
            if moved:
                was_idle = False
                continue
            if scheduler.is_idle and not was_idle:
                was_idle = True
                self._on_idle()
            with self._wake:
                if not (self._inbox or self._is_stopping):
                    self._wake.wait(None if scheduler.is_idle else _IDLE_WAIT_S)
        while self._inbox:  # what was asked for before the stop is answered, too
            self._inbox.popleft()(scheduler)
        for request_id in tuple(self._unfinished):
            scheduler.abort(request_id)
        self._on_step()

    def _fail_all(self, message: str) -> None:
        for request_id in tuple(self._unfinished):
            self._deliver(Failed(request_id, EngineDied.code, message))
        self._on_step()


@contextmanager
def _frozen() -> Iterator[None]:
    """Garbage collection passes over all that was built: a full pass over models' modules takes tens of milliseconds,
    which would lie between two tokens."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
