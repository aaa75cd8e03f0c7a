"""A launched step as the scheduler waits for it: done at once on a CPU, an event on a GPU."""

import time
from typing import Any

import torch

from .step import Pending


class Done:
    """Was computed by the time the launch returned."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds: float | None = seconds

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return None


class Enqueued:
    """On its way on the current stream, between two events."""

    __slots__ = ("_end", "_start")

    def __init__(self, start: Any, end: Any) -> None:
        self._start = start
        self._end = end

    @property
    def seconds(self) -> float | None:
        return self._start.elapsed_time(self._end) / 1e3 if self.done() else None

    def done(self) -> bool:
        return bool(self._end.query())

    def wait(self) -> None:
        self._end.synchronize()


class Stopwatch:
    """Started before the work is enqueued; `stop` gives what the scheduler waits for."""

    __slots__ = ("_event", "_started_s")

    def __init__(self, device: torch.device) -> None:
        self._event: Any = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()
        self._started_s = time.perf_counter()

    def stop(self) -> Pending:
        if self._event is None:
            return Done(time.perf_counter() - self._started_s)
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        return Enqueued(self._event, end)
