"""What a caller holds while a request runs: events one by one, or the result at the end, from threads or coroutines.

Filled by the engine's threads, read by the caller's. Knows nothing of models.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Generic, TypeVar

from hemiola.core.errors import EngineDied, HemiolaError, InvalidRequest, Overloaded, RequestAborted, StepFailed
from hemiola.core.events import Event, Failed, Final

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
    """

    def __init__(
        self, request_ids: Sequence[str], assemble: Callable[[Sequence[Event]], T], cancel: Callable[[str], None]
    ) -> None:
        self.request_ids = tuple(request_ids)
        self._assemble = assemble
        self._cancel = cancel
        self._unfinished = set(request_ids)
        self._has_failed = False
        self._events: list[Event] = []
        self._unread: deque[Event] = deque()
        self._changed = threading.Condition()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    # Written by the engine.

    def push(self, event: Event) -> None:
        """Adds an event; called by the engine's threads only."""
        with self._changed:
            self._events.append(event)
            self._unread.append(event)
            if isinstance(event, Final):
                self._unfinished.discard(event.request_id)
                self._has_failed |= isinstance(event, Failed)
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        for loop, future in waiters:
            loop.call_soon_threadsafe(_wake, future)

    # Read by the caller.

    @property
    def is_done(self) -> bool:
        return not self._unfinished

    def cancel(self) -> None:
        """Aborts whatever is unfinished; the requests end with Failed(`request_aborted`)."""
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
            while not self._is_decided():
                await self._wait_until(self._is_decided)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._outcome()

    def __iter__(self) -> Iterator[Event]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._unread) or self.is_done)
                if not self._unread:
                    return
                event = self._unread.popleft()
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self.is_done and not self._unread:
                return
            await self._wait_until(lambda: bool(self._unread) or self.is_done)

    def _is_decided(self) -> bool:
        return self.is_done or self._has_failed

    def _outcome(self) -> T:
        for event in self._events:
            if isinstance(event, Failed):
                self.cancel()
                raise error_of(event)
        return self._assemble(self._events)

    async def _wait_until(self, is_enough: Callable[[], bool]) -> None:
        """Waits for one change, unless it is enough already."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if is_enough():
                return
            self._waiters.append((loop, future))
        await future


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
