"""Lanes: ordered queues of launched steps on one device, each with at most `depth` steps in flight.

A CPU has one lane that serves every name; a GPU has one for language and one for media. While another lane has work, a
lane's steps may have to do with a share of the SMs. Which streams that takes, `core.streams` knows.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from hemiola.core.step import Batch, Pending, Runner, Slot

from .cost_model import ALONE, LaneUse

_POLL_S = 20e-6  # how often several lanes are looked at; a sleep of nothing takes about as long
_GRAPH_S = 2e-3  # a launch that takes the host longer is one of kernel after kernel
_LAUNCH_S = 1.5e-3  # what a launch may take the host: a denoise step of FLUX begins with some fifty operations


@dataclass(slots=True)
class LaunchedStep:
    """A launched batch and what was thought of it; whoever collects it reports the difference.

    Fields:
        launch_s: what the launch took the host.
    """

    runner: Runner[Any]
    batch: Batch
    pending: Pending
    slot: Slot
    phase: str
    cost_key: Hashable
    predicted_s: float
    launch_s: float = 0.0


class Lane:
    """An ordered queue of steps. `sequence` grows by one per launch and names the step to leases.

    Args:
        depth: how many steps may be in flight, in all and of one state.
        share_beside: of the device's SMs, the most that its steps get while another lane has work.
    """

    def __init__(self, name: str, depth: int = 1, share_beside: float = 1.0) -> None:
        self.name = name
        self.depth = depth
        self.share_beside = share_beside
        self.sequence = 0
        self.steps: deque[LaunchedStep] = deque()
        self._free_s = 0.0  # when the step before the first one in flight was collected

    @property
    def has_room(self) -> bool:
        return len(self.steps) < self.depth

    @property
    def is_clear(self) -> bool:
        """Whether the device's queue is: behind many kernels in flight, launching more may have to wait for room."""
        return all(step.launch_s < _GRAPH_S for step in self.steps)

    def take_first(self, now_s: float) -> LaunchedStep:
        """The first step in flight, which is done."""
        self._free_s = now_s
        return self.steps.popleft()

    @property
    def next_end_s(self) -> float:
        """When the first step in flight will be done, as it was predicted."""
        first = self.steps[0]
        return max(first.slot.now_s, self._free_s) + first.predicted_s

    def next_slot(self, now_s: float, sm_share: float = 1.0) -> Slot:
        """A place behind all that was launched on this lane."""
        self.sequence += 1
        return Slot(self.name, sm_share, self.sequence, now_s)


class Lanes:
    """The lanes of a device, and which of them serves the lane name that a state asks for."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        if not lanes:
            raise ValueError("A device needs at least one lane.")
        self.all = tuple(lanes)
        self._by_name = {lane.name: lane for lane in lanes}

    def use_of(self, lane: Lane) -> LaneUse:
        """What a step launched on the lane now has of the device."""
        is_shared = any(other.steps for other in self.all if other is not lane)
        return LaneUse(lane.share_beside, is_shared=True) if is_shared else ALONE

    @classmethod
    def single(cls, depth: int = 1) -> "Lanes":
        """One lane for everything, as on a CPU."""
        return cls([Lane("device", depth)])

    def serving(self, name: str) -> Lane:
        """The lane of that name, or the first if the device has no lane of its own for it."""
        return self._by_name.get(name, self.all[0])

    def is_better_later(self, lane: Lane, now_s: float) -> bool:
        """Whether a launch on the lane had better wait for the result of a lane before it, which is about to come.

        There is one host: while it launches, no token is told. It waits only while the lane is at work meanwhile.
        """
        if not lane.steps:
            return False
        for other in self.all[: self.all.index(lane)]:
            if other.steps and abs(other.next_end_s - now_s) < _LAUNCH_S < lane.next_end_s - other.next_end_s:
                return True
        return False

    def wait_for_any(self, is_called: Callable[[], bool]) -> None:
        """Waits until the first step of some lane is done, or `is_called` says so; not at all if none is in flight."""
        first = [lane.steps[0].pending for lane in self.all if lane.steps]
        if len(self.all) == 1:
            for pending in first:
                pending.wait()
        while first and not (is_called() or any(pending.done() for pending in first)):
            time.sleep(_POLL_S)

    @property
    def num_in_flight(self) -> int:
        return sum(len(lane.steps) for lane in self.all)
