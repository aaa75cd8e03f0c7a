"""A runner whose device work goes to its lane's stream. The scheduler sees it as any other runner.

Between steps (admitting, planning, parking, ending) work is enqueued behind the lane's steps; a launch runs in its
slot, and is in flight until it is collected.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from .caches import Caches, out_of_memory
from .device import InFlight
from .errors import HemiolaError
from .events import Event
from .request import Request
from .step import Batch, Pending, Quantum, Refused, Runner, Shortfall, Slot, StateView, StepOutput
from .warm_up import HasWarmUps, WarmUp

S = TypeVar("S", bound=StateView)

_LOWER = {
    "language": "the prompt's length or 'max_batch_tokens'",
    "media": "the request's size or number of frames ('max_pixels', 'max_frame_pixels' and 'max_frames' say how much "
    "memory is kept for them)",
}


class _Launched(NamedTuple):
    """A launch and its slot. See `core.step.Pending`."""

    pending: Pending
    slot: Slot

    @property
    def seconds(self) -> float | None:
        return self.pending.seconds

    def done(self) -> bool:
        return self.pending.done()

    def wait(self) -> None:
        self.pending.wait()


class OnLane(Generic[S]):
    """See `core.step.Runner`.

    Args:
        caches: of the device, given back when a step has found too little of its memory.
    """

    def __init__(self, runner: Runner[S], in_flight: InFlight, caches: Caches | None = None) -> None:
        self.runner = runner
        self._in_flight = in_flight
        self._caches = caches
        self._is_short = False

    @property
    def model(self) -> str:
        return self.runner.model

    @property
    def lane(self) -> str:
        return self.runner.lane

    def admit(self, request: Request) -> S | Refused | Shortfall:
        with self._in_flight.on(self.lane):
            return self.runner.admit(request)

    def plan(self, states: Sequence[S], quantum: Quantum) -> Batch | Shortfall:
        with self._in_flight.on(self.lane):
            return self.runner.plan(states, quantum)

    def launch(self, batch: Batch, slot: Slot) -> Pending:
        with self._telling_shortness(), self._in_flight.launching(slot):
            return _Launched(self.runner.launch(batch, slot), slot)

    def collect(self, batch: Batch, pending: Any) -> Sequence[StepOutput]:
        self._in_flight.completed(pending.slot.lane, pending.slot.sequence)
        with self._in_flight.on(self.lane):
            return self.runner.collect(batch, pending.pending)

    def cancel(self, batch: Batch) -> None:
        """Raises where the step failed because the device is lost: that is no request's fault, and the engine's end."""
        self._in_flight.finish(self.lane)
        with self._in_flight.on(self.lane):
            self.runner.cancel(batch)
        if self._is_short and self._caches is not None:  # now that nobody holds what the step had got
            self._is_short = False
            self._caches.give_back()

    def park(self, state: S) -> Pending | Shortfall:
        with self._in_flight.on(self.lane):
            return self.runner.park(state)

    def resume(self, state: S) -> Pending | Shortfall:
        with self._in_flight.on(self.lane):
            return self.runner.resume(state)

    def stop(self, state: S) -> Sequence[Event]:
        return self.runner.stop(state)

    def release(self, state: S, error: HemiolaError | None = None) -> None:
        with self._in_flight.on(self.lane):
            self.runner.release(state, error)

    def warm_ups(self) -> Iterable[WarmUp]:
        """See `core.warm_up.HasWarmUps`: what the runner has to build, on the lane's stream."""
        if isinstance(self.runner, HasWarmUps):
            for warm_up in self.runner.warm_ups():
                yield replace(warm_up, run=partial(self._build, warm_up))

    def _build(self, warm_up: WarmUp) -> None:
        with self._telling_shortness(), self._in_flight.on(self.lane):
            warm_up.run()

    @contextmanager
    def _telling_shortness(self) -> Iterator[None]:
        """Raises StepOutOfMemory for torch's error, without its traceback, which holds the step's tensors."""
        short = None
        try:
            yield
        except torch.OutOfMemoryError as error:
            short = out_of_memory(error, self.model, _LOWER.get(self.lane, "what is asked"))
        if short is not None:
            self._is_short = True
            raise short

    def chores(self) -> Iterable[S]:
        return self.runner.chores()

    def let_go(self, program: str | None) -> bool:
        with self._in_flight.on(self.lane):
            return self.runner.let_go(program)
