"""Wakes coroutines from the engine's threads: one call into an event loop for all of its coroutines that are due.

A step of many requests wakes as many coroutines. Asking the loop once for each costs a system call a time, and the
engine's thread would pay for it.
"""

import asyncio
import threading

Sleeper = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Wakeups:
    """Shared by the streams of one engine. Any thread may call `wake`."""

    def __init__(self) -> None:
        self._due: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        self._lock = threading.Lock()

    def wake(self, sleeper: Sleeper) -> None:
        """Ends the wait of a coroutine soon; does nothing if its loop is closed."""
        loop, future = sleeper
        with self._lock:
            due = self._due.get(loop)
            if due is not None:
                due.append(future)
                return
            self._due[loop] = [future]
        try:
            loop.call_soon_threadsafe(self._wake_all, loop)
        except RuntimeError:  # the loop is closed: nobody waits any more
            with self._lock:
                self._due.pop(loop, None)

    def _wake_all(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            due = self._due.pop(loop)
        for future in due:
            if not future.done():
                future.set_result(None)
