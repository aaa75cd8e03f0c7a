"""Where runners run: the lanes of a device, and on CUDA the streams behind them.

A CPU has one lane, on which a step is complete when its launch returns. A GPU has one for language, whose steps go
first, and one for media, whose steps have some of the SMs only while language is at work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from hemiola.core.caches import Caches
from hemiola.core.config import ResolvedConfig
from hemiola.core.device import InFlight
from hemiola.core.graphs import GraphPool
from hemiola.core.on_lane import OnLane
from hemiola.core.sm_shares import SmShares
from hemiola.core.step import Runner
from hemiola.core.streams import FIRST, LAST, CudaStreams
from hemiola.kernels.captured import keeping
from hemiola.scheduler.lanes import Lane, Lanes

_STEPS_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Placement:
    """Fields:
    in_flight: of the device's steps, for the arena and the runners.
    lanes: for the scheduler.
    pools: of each lane whose steps are captured as graphs, their scratch memory.
    device: where all of it is.
    """

    in_flight: InFlight
    lanes: Lanes
    pools: Mapping[str, GraphPool] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def wrap(self, runner: Runner[Any]) -> Runner[Any]:
        """The runner as the scheduler is to see it."""
        if not isinstance(self.in_flight, CudaStreams):
            return runner
        return OnLane(runner, self.in_flight, Caches(self.device))


def place(config: ResolvedConfig) -> Placement:
    """The lanes of the configured device."""
    if not config.is_gpu:
        return Placement(InFlight(), Lanes.single())
    device = torch.device(config.device)
    streams = CudaStreams(device, priorities={"language": FIRST, "media": LAST}, shares=SmShares(device))
    lanes = [
        Lane("language", _STEPS_IN_FLIGHT),
        Lane("media", _STEPS_IN_FLIGHT, share_beside=config.media_sm_share),
    ]
    return Placement(streams, Lanes(lanes), {lane.name: GraphPool(device, keeping) for lane in lanes}, device)
