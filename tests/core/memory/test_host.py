"""The host tier: bit-equal copies, a full tier, copies that are only a cache."""

import pytest
import torch

from hemiola.core.memory import Arena, HostCopy, HostTier
from hemiola.core.step import Shortfall


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64])
def test_a_copy_comes_back_bit_equal(dtype: torch.dtype) -> None:
    host = HostTier(1 << 14)
    original = torch.randint(0, 255, (7, 3, 64), dtype=torch.uint8).view(dtype)[:, ::2]
    copy = host.store(original, "r")
    assert isinstance(copy, HostCopy)
    back = torch.zeros_like(original)
    copy.load_into(back)
    assert back.contiguous().view(torch.uint8).equal(original.contiguous().view(torch.uint8))
    with pytest.raises(ValueError, match="cannot load into"):
        copy.load_into(back[:1])
    copy.release()
    copy.release()
    with pytest.raises(ValueError, match="is released"):
        copy.load_into(back)
    assert host.num_free_bytes == host.nbytes
    host.check()


def test_a_full_tier_falls_short_and_no_tier_is_always_full() -> None:
    host = Arena(1 << 14, host_bytes=1000).host
    copies = [host.store(torch.zeros(200, dtype=torch.uint8), f"r{i}") for i in range(4)]
    assert [isinstance(copy, HostCopy) for copy in copies] == [True, True, True, False]
    assert copies[3] == Shortfall(256)
    assert isinstance(Arena(1 << 14).host.store(torch.zeros(1), "r"), Shortfall)


class Cache:
    """Copies by price, as a prefix cache has them."""

    def __init__(self, host: HostTier, prices: list[float]) -> None:
        self.copies = {price: host.store(torch.zeros(256, dtype=torch.uint8), "cache") for price in prices}

    def next_copy_price(self) -> float | None:
        return min(self.copies, default=None)

    def drop_copy(self) -> None:
        copy = self.copies.pop(min(self.copies))
        assert isinstance(copy, HostCopy)
        copy.release()


def test_copies_that_are_only_a_cache_make_room_the_cheapest_first() -> None:
    host = HostTier(4 * 256)
    one, other = Cache(host, [2.0]), Cache(host, [1.0, 4.0, 3.0])
    host.tenants += [one, other]
    assert isinstance(host.store(torch.zeros(512, dtype=torch.uint8), "parked"), HostCopy)
    assert (list(one.copies), list(other.copies)) == ([], [4.0, 3.0])
    assert isinstance(host.store(torch.zeros(600, dtype=torch.uint8), "parked"), Shortfall)
