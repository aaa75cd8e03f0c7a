"""Lanes: ordered queues of launched steps on one device. Each lane is one stream, with at most `depth` steps in flight.

A CPU has one lane that serves every name; a GPU has one for language and one for media.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from hemiola.core.step import Batch, Pending, Runner, Slot


@dataclass(slots=True)
class LaunchedStep:
    """A launched batch and what was thought of it; whoever collects it reports the difference."""

    runner: Runner[Any]
    batch: Batch
    pending: Pending
    slot: Slot
    phase: str
    cost_key: Hashable
    predicted_s: float
    started_s: float


class Lane:
    """An ordered queue of steps. `sequence` grows by one per launch and names the step to leases."""

    def __init__(self, name: str, depth: int = 1) -> None:
        self.name = name
        self.depth = depth
        self.sequence = 0
        self.steps: deque[LaunchedStep] = deque()

    @property
    def has_room(self) -> bool:
        return len(self.steps) < self.depth

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

    @classmethod
    def single(cls, depth: int = 1) -> "Lanes":
        """One lane for everything, as on a CPU."""
        return cls([Lane("device", depth)])

    def serving(self, name: str) -> Lane:
        """The lane of that name, or the first if the device has no lane of its own for it."""
        return self._by_name.get(name, self.all[0])

    @property
    def num_in_flight(self) -> int:
        return sum(len(lane.steps) for lane in self.all)
