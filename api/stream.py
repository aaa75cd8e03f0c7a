"""What a caller holds while a request runs: events one by one, or the result at the end, from threads or coroutines.

Filled by the engine's threads, read by the caller's. Knows nothing of models.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from hemiola.core.errors import EngineDied, HemiolaError, InvalidRequest, Overloaded, RequestAborted, StepFailed
from hemiola.core.events import Event, Failed, Final
from hemiola.core.request import Request

from .wakeups import Sleeper, Wakeups

T = TypeVar("T")

_RAISED = {error.code: error for error in (RequestAborted, StepFailed, EngineDied, Overloaded)}


def error_of(failure: Failed) -> HemiolaError:
    """The exception that a Failed event stands for."""
    if failure.code in _RAISED:
        return _RAISED[failure.code](failure.message)
    error = InvalidRequest("request", failure.message, failure.code)
    return error


class Stream(Generic[T]):
    """The events of one or several requests that were asked for together, and their joint result.

    Iterate it (`for` or `async for`) for events as they come; `result()` or `await aresult()` waits for the end.
    A failure raises from `result`, and ends iteration after its Failed event. One reader at a time.

    Args:
        request_ids: the requests, in the order of the result.
        assemble: makes the result from all events, in order.
        cancel: called with a request id that nobody wants any more.
        wakeups: shared with the streams that the same threads fill.

    Fields:
        requests: what was asked, in the order of `request_ids`; empty where only a server knows it.
    """

    def __init__(
        self,
        request_ids: Sequence[str],
        assemble: Callable[[Sequence[Event]], T],
        cancel: Callable[[str], None],
        *,
        wakeups: Wakeups | None = None,
        requests: Sequence[Request] = (),
    ) -> None:
        self.request_ids = tuple(request_ids)
        self.requests = tuple(requests)
        self._assemble = assemble
        self._cancel = cancel
        self._wakeups = wakeups or Wakeups()
        self._unfinished = set(request_ids)
        self._failed: Failed | None = None
        self._events: list[Event] = []
        self._unread: deque[Event] = deque()
        self._changed = threading.Condition()
        # Coroutines that wait for an event, and those that wait for the end: events pass without waking the latter.
        self._readers: list[Sleeper] = []
        self._waiters: list[Sleeper] = []

    # Written by the engine.

    def push(self, event: Event) -> None:
        """Adds an event; called by the engine's threads only."""
        with self._changed:
            self._events.append(event)
            self._unread.append(event)
            if isinstance(event, Final):
                self._unfinished.discard(event.request_id)
                if isinstance(event, Failed) and self._failed is None:
                    self._failed = event
            due = self._readers.copy()
            self._readers.clear()
            if self._waiters and self._is_decided():
                due += self._waiters
                self._waiters.clear()
            self._changed.notify_all()
        for sleeper in due:
            self._wakeups.wake(sleeper)

    # Read by the caller.

    @property
    def is_done(self) -> bool:
        return not self._unfinished

    @property
    def failure(self) -> HemiolaError | None:
        """What `result` will raise, as soon as that is known."""
        return None if self._failed is None else error_of(self._failed)

    def cancel(self) -> None:
        """Aborts whatever is unfinished; the requests end with Failed(`request_aborted`)."""
        with suppress(EngineDied):  # then they have ended as well
            for request_id in tuple(self._unfinished):
                self._cancel(request_id)

    def result(self, timeout: float | None = None) -> T:
        """Waits for the end and returns it.

        Raises:
            HemiolaError: a request failed; the others of the stream are cancelled.
            TimeoutError: not done within `timeout` seconds; the requests go on.
        """
        with self._changed:
            if not self._changed.wait_for(self._is_decided, timeout):
                raise TimeoutError(f"Not done after {timeout} s: {', '.join(sorted(self._unfinished))}.")
        return self._outcome()

    async def aresult(self) -> T:
        """As `result`, for coroutines; being cancelled cancels the requests."""
        try:
            await self._sleep(self._waiters, self._is_decided)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._outcome()

    def __iter__(self) -> Iterator[Event]:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_news)
                if not self._unread:
                    return
                event = self._unread.popleft()
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            await self.news()
            with self._changed:
                if not self._unread:
                    return
                event = self._unread.popleft()
            yield event

    async def batches(self) -> AsyncIterator[list[Event]]:
        """All events that came since the last look, never none: a reader that is slow wakes up less often."""
        while True:
            await self.news()
            with self._changed:
                events = list(self._unread)
                self._unread.clear()
            if not events:
                return
            yield events

    async def news(self) -> None:
        """Waits until there is something to read, or nothing will come any more."""
        await self._sleep(self._readers, self._has_news)

    def _has_news(self) -> bool:
        return bool(self._unread) or self.is_done

    def _is_decided(self) -> bool:
        return self.is_done or self._failed is not None

    def _outcome(self) -> T:
        failure = self.failure
        if failure is not None:
            self.cancel()
            raise failure
        return self._assemble(self._events)

    async def _sleep(self, among: list[Sleeper], is_enough: Callable[[], bool]) -> None:
        """Sleeps among those until it is enough; returns at once if it is."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if is_enough():
                    return
                future: asyncio.Future[None] = loop.create_future()
                among.append((loop, future))
            await future
