"""Graphs do not harm each other: neither a capture that fails, nor one that is dropped."""

import gc

import pytest
import torch

from hemiola.core.graphs import GraphPool
from hemiola.kernels.captured import keeping

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

DEVICE = torch.device("cuda:0")


def test_a_capture_that_ends_well_though_it_failed_leaves_its_pool() -> None:
    """As where memory runs out: another pool would be memory that nobody planned for."""
    pool = GraphPool(DEVICE, keeping)
    handle = pool._handle
    with torch.cuda.stream(torch.cuda.Stream(DEVICE)):
        x = torch.zeros(1 << 20, device=DEVICE)

        def adds() -> None:
            x.add_(torch.ones_like(x))

        def fails() -> None:
            adds()
            raise MemoryError

        adds()
        first = pool.capture(adds)
        with pytest.raises(MemoryError):
            pool.capture(fails)
        assert pool._handle == handle
        for graph in (first, pool.capture(adds)):
            graph()
        assert x.min().item() == x.max().item() == 3


def test_after_a_failed_capture_the_stream_runs_and_captures_on() -> None:
    pool = GraphPool(DEVICE, keeping)
    with torch.cuda.stream(torch.cuda.Stream(DEVICE)):
        x = torch.zeros(1 << 20, device=DEVICE)

        def waits_for_the_device() -> None:
            (x + 1).sum().item()

        def adds() -> None:
            x.add_(torch.ones_like(x))

        waits_for_the_device()
        adds()
        with pytest.raises(RuntimeError, match="captur"):
            pool.capture(waits_for_the_device)
        assert pool.num_graphs == 0 and gc.isenabled()
        adds()
        assert torch.randn(8, device=DEVICE).isfinite().all()
        for each in (pool, GraphPool(DEVICE, keeping)):
            graph = each.capture(adds)
            graph()
            assert each.num_graphs == 1
        assert x.min().item() == x.max().item() == 4


@pytest.mark.parametrize("is_same_pool", [True, False])
def test_a_graph_does_what_it_did_after_another_one_of_its_stream_was_dropped(is_same_pool: bool) -> None:
    """They shared what cuBLAS works in, which went with the other one: an illegal memory access."""
    pool = GraphPool(DEVICE, keeping)
    other_pool = pool if is_same_pool else GraphPool(DEVICE, keeping)
    with torch.cuda.stream(torch.cuda.Stream(DEVICE)):
        x = torch.randn(32768, 640, device=DEVICE, dtype=torch.bfloat16)
        y = torch.empty(640, 640, device=DEVICE, dtype=torch.bfloat16)

        def multiplies() -> None:
            torch.mm(x.t(), x, out=y)  # long sums of few products are split, and the parts summed up later

        multiplies()
        wanted = y.clone()
        graph, other = pool.capture(multiplies), other_pool.capture(multiplies)
        other.drop()
        torch.cuda.empty_cache()
        spoilt = torch.full((1 << 28,), 255, device=DEVICE, dtype=torch.uint8)
        y.zero_()
        graph()
        assert torch.equal(y, wanted)
        assert spoilt.min().item() == 255
