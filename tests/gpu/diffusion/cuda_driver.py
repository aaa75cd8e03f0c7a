"""Drives a runner on a GPU as the scheduler does: on its lane's stream, with two steps in flight."""

from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from hemiola.core.graphs import GraphPool
from hemiola.core.memory import Arena
from hemiola.core.on_lane import OnLane
from hemiola.core.sm_shares import SmShares
from hemiola.core.step import Batch, Pending, Slot
from hemiola.core.streams import LAST, CudaStreams
from hemiola.diffusion.families import Family
from hemiola.diffusion.runner import DiffusionRunner
from hemiola.diffusion.state import DiffusionState
from hemiola.kernels.captured import keeping
from hemiola.tests.diffusion.driver import Cut, Driver, whole

DEVICE = torch.device("cuda:0")
DEPTH = 2


@cache
def sm_shares() -> SmShares:
    """Contexts of streams are made once in a process."""
    return SmShares(DEVICE)


class CudaDriver(Driver):
    """See `Driver`. Without `graphs` all blocks run eagerly."""

    def __init__(self, family: Family, *, graphs: bool = True, arena_bytes: int = 256 << 20) -> None:
        self.streams = CudaStreams(DEVICE, priorities={"media": LAST}, shares=sm_shares())
        self.arena = Arena(arena_bytes, device=DEVICE, host_bytes=32 << 20, clock=self.streams)
        pool = GraphPool(DEVICE, keeping) if graphs else None
        self.runner = DiffusionRunner("m", family, self.arena, device=DEVICE, graph_pool=pool)
        self.on_lane: OnLane[DiffusionState] = OnLane(self.runner, self.streams)
        self.events = []
        self._sequence = 0
        self._in_flight: deque[tuple[Batch, Pending]] = deque()

    def admit(self, request: Any) -> DiffusionState:
        with self.streams.on("media"):
            return super().admit(request)

    def plan(self, states: Sequence[DiffusionState], cut: Cut = whole) -> Batch:
        with self.streams.on("media"):
            return super().plan(states, cut)

    def launch(self, batch: Batch) -> None:
        self.enqueue(batch)
        while len(self._in_flight) >= DEPTH:
            self.collect()

    def enqueue(self, batch: Batch) -> None:
        """Launches, however much is in flight."""
        self._sequence += 1
        try:
            pending = self.on_lane.launch(batch, Slot("media", self.sm_share, self._sequence, 0.0))
        except Exception:
            self.on_lane.cancel(batch)
            raise
        self._in_flight.append((batch, pending))

    def collect(self) -> None:
        """Waits for the first step in flight, and takes what it gave."""
        batch, pending = self._in_flight.popleft()
        pending.wait()
        assert pending.done()
        for output in self.on_lane.collect(batch, pending):
            self.events += output.events
            if output.is_final:
                self.on_lane.release(output.state)

    def settle(self) -> None:
        """Collects all that is in flight."""
        while self._in_flight:
            self.collect()

    def run(self, states: Sequence[DiffusionState], cut: Cut = whole) -> None:
        while True:
            ready = [state for state in states if not state.is_released and state.is_ready]
            if ready:
                key = ready[0].batch_key
                self.step([state for state in ready if state.batch_key == key], cut)
            elif self._in_flight:
                self.collect()
            else:
                break
        assert all(state.is_released for state in states), "some are not ready and nothing runs that they wait for"

    def assert_nothing_is_held(self) -> None:
        self.settle()
        super().assert_nothing_is_held()
