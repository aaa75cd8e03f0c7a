"""The engine in a process of its own, as a `Backend`: requests out, events in, and what happens when it dies.

When it dies, every unfinished request fails at once with `engine_died`, the log says so, and another is started: so
many times in a while, then no more. Nobody waits for an engine that is gone. Knows no HTTP and no models.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from hemiola.core.errors import CorruptWeights, EngineDied, HemiolaError, ModelNotFound, Overloaded, UnsupportedModel
from hemiola.core.events import Event, Failed, Final
from hemiola.core.request import MediaRequest, Request

from .frames import PrivateFolders
from .incoming import FrameReader
from .link import ENGINE_MODULE, EngineLink
from .restarts import Deaths, Restarts, Starts
from .stats import EngineStats
from .wire import (
    Abort,
    Command,
    Died,
    EndProgram,
    EngineSpec,
    EventBatch,
    Finish,
    Flushed,
    MediaBatch,
    Ready,
    Report,
    Shutdown,
    StartFailed,
    Starting,
    StartReport,
    StatsReport,
    Steps,
    Submit,
)

log = logging.getLogger(__name__)

State = Literal["new", "starting", "ready", "restarting", "down", "closed"]

_STOP_WAIT_S = 10.0
_PLAIN_ERRORS = {error.code: error for error in (ModelNotFound, UnsupportedModel, CorruptWeights, EngineDied)}


class RemoteEngine:
    """Runs requests in another process. All methods may be called on any thread.

    Args:
        spec: what the process runs.
        deliver: told every event, in order per request, on this object's threads; must not block.
        max_queue: requests that may wait to be admitted; beyond, `submit` raises Overloaded.
        on_line: told how a start goes, line by line.
        module: what the process runs.

    Fields:
        on_down: told why, when there is no engine and will be none. To be set before `begin`.
        state: `ready` takes requests.
        report: what runs, once it was ready.
        stats: the engine's newest figures.
        pid: of its process, None while there is none.
    """

    def __init__(
        self,
        spec: EngineSpec,
        deliver: Callable[[Event], None],
        *,
        max_queue: int = 256,
        restarts: Restarts | None = None,
        on_line: Callable[[str], None] | None = None,
        module: str = ENGINE_MODULE,
    ) -> None:
        self.state: State = "new"
        self.is_draining = False
        self.report: StartReport | None = None
        self.stats: EngineStats | None = None
        self.num_restarts = 0
        self._spec = spec
        self._deliver = deliver
        self._max_queue = max_queue
        self._on_line = on_line
        self.on_down: Callable[[HemiolaError], None] | None = None
        self._module = module
        self._folders = PrivateFolders()
        self._frames = FrameReader(self._folders.all, self._arrived)
        self._changed = threading.Condition()  # guards all that follows, and the link's sending
        self._link: EngineLink | None = None
        self._unfinished: dict[str, bool] = {}  # id -> whether it is for pictures or clips
        self._num_sent = self._num_taken = self._num_queued = 0
        self._queries: dict[int, Future[Any]] = {}
        self._query_ids = itertools.count()
        self._deaths = Deaths(restarts or Restarts())
        self._starts = Starts()
        self._error: HemiolaError | None = None
        self._thread = threading.Thread(target=self._run, name="hemiola-remote", daemon=True)

    # Life

    def begin(self) -> None:
        """Starts the process, and returns at once."""
        self._starts.begin(time.monotonic())
        self._become("starting")
        self._thread.start()

    def wait_ready(self, timeout: float | None = None) -> StartReport:
        """What runs, as soon as it does.

        Raises:
            HemiolaError: it cannot be run; the code is the engine's.
            TimeoutError: not ready within `timeout` seconds; the start goes on.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.state in ("ready", "down", "closed"), timeout):
                raise TimeoutError(f"The engine is not ready after {timeout} s.")
            if self._error is not None:
                raise self._error
            if self.report is None:
                raise EngineDied("The engine was closed before it was ready.")
            return self.report

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return self.state == "ready" and not self.is_draining

    @property
    def pid(self) -> int | None:
        link = self._link
        return None if link is None else link.process.pid

    @property
    def num_unfinished(self) -> int:
        return len(self._unfinished)

    @property
    def num_queued(self) -> int:
        """Requests that wait to be admitted, as far as is known here: what is on its way counts."""
        return self._num_queued + self._num_sent - self._num_taken

    def drain(self, timeout: float | None = None) -> bool:
        """Takes no more requests; whether all that were running have ended in time."""
        with self._changed:
            self.is_draining = True
            return self._changed.wait_for(lambda: not self._unfinished, timeout)

    def fail_all(self, error: HemiolaError) -> None:
        """Ends every request at once with that error; the engine is told to abort them."""
        unfinished = tuple(self._unfinished)
        self._fail_unfinished(error)  # first, or they might end as aborted
        with self._changed:
            if self._link is not None:
                for request_id in unfinished:
                    self._link.send(Abort(request_id))

    def close(self, drain_s: float = 0.0) -> None:
        """Lets requests end for so long, aborts the others, and ends the process."""
        self.drain(drain_s)
        with self._changed:
            was_ready = self.state == "ready"
            self.state = "closed"
            if self._link is not None and not (was_ready and self._link.send(Shutdown())):
                self._link.kill()
            self._changed.notify_all()
        self._end_thread()
        self._fail_unfinished(EngineDied("The engine was stopped."))
        self._frames.close()
        self._folders.close()

    def _end_thread(self) -> None:
        if not self._thread.is_alive():
            return
        self._thread.join(_STOP_WAIT_S)
        link = self._link
        if self._thread.is_alive() and link is not None:
            log.error("The engine process does not end; it is killed.")
            link.kill()
        self._thread.join()

    # Requests

    def submit(self, request: Request) -> None:
        """Sends a request.

        Raises:
            Overloaded: too many are waiting, or the engine is starting, be it again, or stopping.
            EngineDied: there is no engine, and will be none.
        """
        command = Submit(request)
        with self._changed:
            self._refuse_unless_open()
            assert self._link is not None
            self._unfinished[request.id] = isinstance(request, MediaRequest)
            if not self._link.send(command):
                del self._unfinished[request.id]  # the process has just ended, and another is about to start
                raise self._starts.not_yet(time.monotonic())
            self._num_sent += 1

    def _refuse_unless_open(self) -> None:
        if self.is_draining:
            raise Overloaded("The server is stopping.")
        if self.state != "ready":
            raise self._why_not_ready()
        if self.num_queued >= self._max_queue:
            raise Overloaded(f"{self.num_queued} requests are waiting already; at most {self._max_queue} may.")

    def _why_not_ready(self) -> HemiolaError:
        """What whoever asks now is told; only of an engine that never comes is it a failure."""
        if self.state == "closed":
            return Overloaded("The server is stopping.")
        if self.state == "down":
            return EngineDied(f"There is no engine: {self._error.message if self._error else ''}")
        return self._starts.not_yet(time.monotonic())

    def abort(self, request_id: str) -> None:
        """Ends a request with Failed(`request_aborted`), if it has not ended."""
        self._send_if_running(request_id, Abort(request_id))

    def finish(self, request_id: str) -> None:
        """Ends a request well, if it has not ended: its answer is complete as it is."""
        self._send_if_running(request_id, Finish(request_id))

    def end_program(self, program: str) -> None:
        """Of a program nothing is left and nothing will come: what was kept for it may go."""
        with self._changed:
            if self._link is not None:
                self._link.send(EndProgram(program))

    def _send_if_running(self, request_id: str, command: Command) -> None:
        """If the engine has just died, the request fails of that."""
        with self._changed:
            if self._link is not None and request_id in self._unfinished:
                self._link.send(command)

    def ask(self, command: Callable[[int], Command]) -> "Future[Any]":
        """Sends a command that is answered.

        Args:
            command: makes it with the query's number.

        The future raises as `submit` does where the engine is not ready, and EngineDied if it dies before it answers.
        """
        future: Future[Any] = Future()
        with self._changed:
            query = next(self._query_ids)
            if self.state != "ready":
                future.set_exception(self._why_not_ready())
            elif self._link is None or not self._link.send(command(query)):
                future.set_exception(self._starts.not_yet(time.monotonic()))
            else:
                self._queries[query] = future
        return future

    # On the thread

    def _run(self) -> None:
        try:
            for number in itertools.count():
                self._run_one(number)
                if not self._may_go_on():
                    return
        except Exception as error:
            log.exception("The engine process cannot be looked after any more.")
            self._give_up(HemiolaError(f"{type(error).__name__}: {error}"))

    def _run_one(self, number: int) -> None:
        """One process, from its start to its end."""
        link = EngineLink(self._spec, self._folders, number, self._module)
        with self._changed:
            self._num_sent = self._num_taken = self._num_queued = 0
            self._link, self._error = link, None
            if self.state == "closed":
                link.kill()
        for report in link.reports():
            self._take(report)
        with self._changed:
            was_ready = self.state == "ready"
            self._link = None
            if was_ready:
                self.state = "restarting"
        num_failed = self._fail_unfinished(EngineDied("The engine died while it worked on this request."))
        how = link.close()
        self._frames.settle()
        self._folders.clear()
        if self.state != "closed":
            when = f"while {num_failed} requests were unfinished" if was_ready else "before it was ready"
            what = f"The engine process ({link.process.pid}) {how} {when}"
            if self._error is None:
                self._error = EngineDied(f"The engine process {how} {when}.")
                log.critical("%s.", what)
            else:  # whoever waits for the first start is told; of a later one the log alone is
                log.log(logging.INFO if self.state == "starting" else logging.CRITICAL, "%s: %s", what, self._error)

    def _take(self, report: Report) -> None:
        match report:
            case EventBatch(events, num_taken, num_queued):
                self._num_taken, self._num_queued = num_taken, num_queued
                for event in events:
                    self._arrived(event)
            case MediaBatch():
                self._frames.put(report)
            case StatsReport(stats, query):
                self.stats = stats
                if query is not None:
                    self._answer(query, stats)
            case Steps(query, answer) | Flushed(query, answer):
                self._answer(query, answer)
            case Starting(line):
                log.info("%s", line)
                if self._on_line is not None:
                    self._on_line(line)
            case Ready(start_report):
                self.report = start_report
                self._starts.end(time.monotonic())
                self._become("ready")
            case StartFailed(code, message):
                self._error = _error(code, message)
            case Died(message):
                log.critical("The engine's loop died: %s", message)

    def _arrived(self, event: Event) -> None:
        """Tells it, unless the request has ended: nothing comes after a final event, and each has one."""
        if isinstance(event, Final):
            with self._changed:
                if self._unfinished.pop(event.request_id, None) is None:
                    return
                if not self._unfinished:
                    self._changed.notify_all()
        elif event.request_id not in self._unfinished:
            return
        self._deliver(event)

    def _answer(self, query: int, answer: object) -> None:
        with self._changed:
            future = self._queries.pop(query, None)
        if future is not None:
            future.set_result(answer)

    def _fail_unfinished(self, error: HemiolaError) -> int:
        """How many requests that were. Those of pictures come after what is still being read of them."""
        with self._changed:
            unfinished = dict(self._unfinished)
            queries, self._queries = self._queries, {}
        failures = [(Failed(each, error.code, error.message), is_media) for each, is_media in unfinished.items()]
        self._frames.put(MediaBatch(tuple(failed for failed, is_media in failures if is_media)))
        for failed, is_media in failures:
            if not is_media:
                self._arrived(failed)
        for future in queries.values():
            future.set_exception(error)
        return len(failures)

    def _may_go_on(self) -> bool:
        """Whether another process is to be started, after a pause if the last ones died soon."""
        if self.state == "closed":
            return False
        assert self._error is not None
        if self.state == "starting":  # it never ran: it would not run the next time either
            self._give_up(self._error)
            return False
        pause_s = self._deaths.note(time.monotonic())
        if pause_s is None:
            log.critical("Those were %s: it is not started again.", self._deaths)
            self._give_up(self._error)
            return False
        self.num_restarts += 1
        self._starts.begin(time.monotonic() + pause_s)
        log.error("Starting it again.")
        with self._changed:
            self._changed.wait_for(lambda: self.state == "closed", pause_s)
            return self.state == "restarting"

    def _give_up(self, error: HemiolaError) -> None:
        self._error = error
        self._become("down")
        self._fail_unfinished(EngineDied(error.message))
        if self.on_down is not None:
            self.on_down(error)

    def _become(self, state: State) -> None:
        with self._changed:
            if self.state != "closed":
                self.state = state
            self._changed.notify_all()


def _error(code: str, message: str) -> HemiolaError:
    """The error that the engine's process could not be started for."""
    if code in _PLAIN_ERRORS:
        return _PLAIN_ERRORS[code](message)
    error = HemiolaError(message)
    error.code = code
    return error
