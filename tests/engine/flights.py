"""How steps are in flight in a rig: not at all, as on a CPU; or as on a GPU, in lanes of two steps each.

The device of the latter is a fake one. It has computed when a launch returns, but does not say so before somebody has
asked for a while; until then bytes retire and results are not collected. Bytes that are free are overwritten, so that
nobody reads what is not his any more.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from hemiola.api.placing import Placement
from hemiola.core.device import InFlight
from hemiola.core.graphs import GraphPool
from hemiola.core.memory.lease import Lease
from hemiola.core.memory.room import Room
from hemiola.core.on_lane import OnLane
from hemiola.core.step import Pending, Runner, Slot
from hemiola.kernels.captured import keeping
from hemiola.scheduler.lanes import Lane, Lanes
from hemiola.scheduler.simulator import Elapsed, VirtualClock

NUM_POLLS = 2
"""How often a step says that it is not done."""


@dataclass(frozen=True)
class Flight:
    """Fields: the names of the lanes; how many steps may be in flight in each; whether steps are done once launched."""

    lanes: tuple[str, ...] = ("device",)
    depth: int = 1
    is_immediate: bool = True

    def placement(self) -> Placement:
        """What api.placing makes for a device."""
        lanes = Lanes([Lane(name, self.depth) for name in self.lanes])
        if self.is_immediate:
            return Placement(InFlight(), lanes)
        return FakePlacement(FakeStreams(), lanes, {"media": GraphPool(torch.device("cpu"), keeping)})


class FakeStreams(InFlight):
    """What `core.streams.CudaStreams` is to CUDA."""

    @contextmanager
    def launching(self, slot: Slot) -> Iterator[None]:
        self.launched(slot.lane, slot.sequence)
        try:
            yield
        except BaseException:
            self.completed(slot.lane, slot.sequence)
            raise


@dataclass(eq=False)
class Later:
    """A launch that ends at a time of the rig's clock, which moves there when somebody waits for it or has asked often.

    Fields:
        pending: what the runner gave.
        seconds: how long it took on the rig's clock.
    """

    pending: Pending
    clock: VirtualClock
    seconds: float
    end_s: float
    num_polls: int = NUM_POLLS

    def done(self) -> bool:
        self.num_polls -= 1
        if self.num_polls >= 0 and self.clock.now_s < self.end_s:
            return False
        if not self.pending.done():
            return False
        self.clock.now_s = max(self.clock.now_s, self.end_s)
        return True

    def wait(self) -> None:
        self.pending.wait()
        self.num_polls = 0


@dataclass(eq=False)
class Timetable:
    """When steps end on the rig's clock: one after another in each lane."""

    flight: Flight
    clock: VirtualClock
    busy_until_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def depart(self, pending: Pending, slot: Slot, seconds: float) -> Any:
        if self.flight.is_immediate:
            assert pending.done(), "A CPU has computed when a launch returns."
            self.clock.now_s += seconds
            return Elapsed(seconds)
        end_s = max(self.clock.now_s, self.busy_until_s[slot.lane]) + seconds
        self.busy_until_s[slot.lane] = end_s
        return Later(pending, self.clock, seconds, end_s)


class SpoilingRoom(Room):
    """Overwrites bytes when they are free."""

    def free(self, lease: Lease) -> None:
        start, end = lease.start, lease.start + lease.nbytes
        lease._buffer[start:end].fill_(0xA5)
        super().free(lease)


class FakePlacement(Placement):
    """With the fake device in place of CUDA's streams. Steps of media are captured as graphs."""

    def wrap(self, runner: Runner[Any]) -> Runner[Any]:
        return OnLane(runner, self.in_flight)


FLIGHTS = {
    "at once": Flight(),
    "one lane": Flight(depth=2, is_immediate=False),
    "two lanes": Flight(("language", "media"), depth=2, is_immediate=False),
}
