"""Streams of lanes on a real device: their order, what is in flight, shares of SMs, graphs."""

import pytest
import torch

from hemiola.core.graphs import GraphPool
from hemiola.core.sm_shares import SmShares
from hemiola.core.step import Slot
from hemiola.core.streams import FIRST, LAST, CudaStreams
from hemiola.kernels.captured import keeping

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda:0")
LONG = 200_000_000  # cycles: about a tenth of a second


def slot(lane: str, sequence: int, share: float = 1.0) -> Slot:
    return Slot(lane, share, sequence, 0.0)


@pytest.fixture
def streams() -> CudaStreams:
    return CudaStreams(DEVICE, priorities={"language": FIRST, "media": LAST}, shares=SmShares(DEVICE))


def sleep() -> None:
    torch.cuda._sleep(LONG)


@pytest.fixture(autouse=True, scope="module")
def loaded_kernels() -> None:
    """A kernel's first launch may wait for the device."""
    torch.zeros(8, device=DEVICE).add_(1).tolist()
    torch.zeros(1 << 20, device=DEVICE).mul_(2).fill_(3)
    torch.cuda._sleep(1)
    torch.cuda.synchronize()


def test_lanes_do_not_wait_for_each_other_and_bytes_retire_when_all_are_done(streams: CudaStreams) -> None:
    retired: list[str] = []
    with streams.launching(slot("media", 1)):
        sleep()
        end = torch.cuda.Event()
        end.record()
    with streams.launching(slot("language", 1)):
        first = torch.zeros(8, device=DEVICE).add_(1)
    streams.stream_of("language").synchronize()
    assert first.tolist() == [1.0] * 8 and not end.query(), "Language waited for media."
    streams.retire(lambda: retired.append("x"))
    streams.completed("language", 1)
    assert retired == []
    end.synchronize()
    streams.completed("media", 1)
    assert retired == ["x"] and streams.is_idle


def test_outside_work_comes_after_all_steps_and_before_all_later_ones(streams: CudaStreams) -> None:
    value, copy, seen = (torch.zeros(1 << 20, device=DEVICE) for _ in range(3))
    torch.cuda.synchronize()
    with streams.launching(slot("media", 1)):
        sleep()
        value.fill_(7)
    with streams.on("language"), streams.outside():
        sleep()
        copy.copy_(value)
    with streams.launching(slot("media", 2)):
        seen.copy_(copy)
        value.fill_(9)
    torch.cuda.synchronize()
    assert copy.min() == 7 and seen.min() == 7 and value.min() == 9


def test_a_lane_stays_in_order_when_its_share_changes(streams: CudaStreams) -> None:
    value = torch.zeros(1 << 20, device=DEVICE)
    torch.cuda.synchronize()
    for number, share in enumerate((1.0, 0.5, 0.5, 1.0), 1):
        with streams.launching(slot("media", number, share)):
            sleep()
            value.mul_(2).add_(1)
    torch.cuda.synchronize()
    assert value.min() == value.max() == 15


def test_a_launch_that_raises_is_over(streams: CudaStreams) -> None:
    with pytest.raises(ZeroDivisionError), streams.launching(slot("media", 1)):
        sleep()
        raise ZeroDivisionError
    assert streams.is_idle


def seconds_of(stream: torch.cuda.Stream) -> float:
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        for _ in range(3):
            a @ a
        start.record()
        for _ in range(10):
            a @ a
        end.record()
    end.synchronize()
    seconds: float = start.elapsed_time(end) / 1e3
    return seconds


def test_a_share_restricts_the_kernels_of_its_stream(streams: CudaStreams) -> None:
    assert streams._shares is not None
    full = seconds_of(streams.stream("media", 1.0))
    half = seconds_of(streams.stream("media", 0.5))
    if streams._shares.why_not is not None:
        pytest.skip(streams._shares.why_not)
    assert 1.25 < half / full < 3.0, f"half of the SMs took {half / full:.2f} times as long"


def test_graphs_of_several_shares_share_a_pool_and_replay(streams: CudaStreams) -> None:
    pool = GraphPool(DEVICE, keeping)
    x = torch.ones(256, 256, device=DEVICE)

    def double() -> None:
        x.copy_((x.clone() + x) * torch.ones_like(x))

    graphs = {}
    for number, share in enumerate((1.0, 0.5), 1):
        with streams.launching(slot("media", number, share)):
            double()
            graphs[share] = pool.capture(double)
    torch.cuda.synchronize()
    assert x.max() == 4
    for number, share in enumerate((1.0, 0.5, 1.0), 3):
        with streams.launching(slot("media", number, share)):
            graphs[share]()
    torch.cuda.synchronize()
    assert x.min() == x.max() == 32 and pool.num_graphs == 2
