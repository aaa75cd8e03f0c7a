"""CUDA streams of one device: one per lane and share of its SMs, and the order between them.

Within a lane everything runs in the order of its enqueueing, whatever share a step has: the stream of a new share waits
for the last step on the old one. Lanes run beside each other; a step reads only what its own lane wrote, or what was
collected before its launch. Device work that belongs to no lane and may touch anybody's bytes goes `outside`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from .device import InFlight
from .sm_shares import SmShares
from .step import Slot

# Streams of lower numbers go first where blocks of several wait for an SM.
FIRST = -1
LAST = 0


class CudaStreams(InFlight):
    """See `InFlight`.

    Args:
        device: a CUDA device.
        priorities: of each lane's streams (`FIRST`, `LAST`); lanes not named here get `LAST`.
        shares: makes streams that are restricted to some SMs.
    """

    def __init__(
        self, device: torch.device, *, priorities: Mapping[str, int] | None = None, shares: SmShares | None = None
    ) -> None:
        super().__init__()
        self._device = device
        self._priorities = dict(priorities or {})
        self._shares = shares
        self._streams: dict[tuple[str, float], Any] = {}
        self._newest: dict[str, Any] = {}

    def stream_of(self, lane: str) -> Any:
        """Where the lane's next work goes, unless its share changes."""
        if lane not in self._newest:
            self._newest[lane] = self.stream(lane, 1.0)
        return self._newest[lane]

    def stream(self, lane: str, sm_share: float) -> Any:
        """The lane's stream of that share; made when it is first asked for."""
        key = (lane, sm_share)
        if key not in self._streams:
            priority = self._priorities.get(lane, LAST)
            if sm_share < 1.0 and self._shares is not None:
                self._streams[key] = self._shares.stream(sm_share, priority)
            elif sm_share < 1.0:
                self._streams[key] = self.stream(lane, 1.0)
            else:
                self._streams[key] = torch.cuda.Stream(self._device, priority=priority)
        return self._streams[key]

    @contextmanager
    def on(self, lane: str) -> Iterator[None]:
        with torch.cuda.stream(self.stream_of(lane)):
            yield

    @contextmanager
    def launching(self, slot: Slot) -> Iterator[None]:
        stream = self._turn(slot.lane, slot.sm_share)
        self.launched(slot.lane, slot.sequence)
        try:
            with torch.cuda.stream(stream):
                yield
        except BaseException:  # nobody will collect it: what was enqueued of it must be over before bytes retire
            stream.synchronize()
            self.completed(slot.lane, slot.sequence)
            raise

    def finish(self, lane: str) -> None:
        self.stream_of(lane).synchronize()

    @contextmanager
    def outside(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self._device)
        others = [stream for stream in self._newest.values() if stream != current]
        for stream in others:
            current.wait_stream(stream)
        yield
        if others:
            end: Any = torch.cuda.Event()
            end.record(current)
            for stream in others:
                stream.wait_event(end)

    def _turn(self, lane: str, sm_share: float) -> Any:
        """The lane's stream of that share, behind all that the lane has enqueued."""
        before, stream = self.stream_of(lane), self.stream(lane, sm_share)
        if stream != before:
            stream.wait_stream(before)
            self._newest[lane] = stream
        return stream
