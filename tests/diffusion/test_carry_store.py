"""A carry in leased memory: bits, strides and aliases survive, and an understated size is found."""

import pytest
import torch

from hemiola.core.memory import Arena, Lease
from hemiola.diffusion.carry_store import CarryStore, slot_sizes
from hemiola.diffusion.stage import Carry


def store(**sizes: int) -> tuple[CarryStore, Arena]:
    arena = Arena(1 << 16)
    slots = slot_sizes([sizes])
    lease = arena.lease(sum(slots.values()), "carry")
    assert isinstance(lease, Lease)
    return CarryStore(lease, slots), arena


def test_kept_tensors_lie_in_the_lease_with_their_bits_and_strides() -> None:
    kept, arena = store(a=4096, b=64)
    a = torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last)
    b = torch.arange(6)
    carry = Carry({"a": a, "b": b})
    kept.keep(carry)
    for name, original in (("a", a), ("b", b)):
        tensor = carry.tensors[name]
        assert torch.equal(tensor, original) and tensor.stride() == original.stride()
        assert arena.buffer.data_ptr() <= tensor.data_ptr() < arena.buffer.data_ptr() + arena.nbytes


def test_a_tensor_that_is_a_view_of_another_slot_is_not_overwritten() -> None:
    kept, _ = store(a=256, b=256)
    carry = Carry({"a": torch.arange(8.0), "b": torch.zeros(8)})
    kept.keep(carry)
    old = carry.tensors["a"]
    carry.tensors["b"] = old
    carry.tensors["a"] = torch.full((8,), 9.0)
    kept.keep(carry)
    assert carry.tensors["b"].tolist() == list(range(8)) and carry.tensors["a"].tolist() == [9.0] * 8


def test_what_stays_in_its_slot_is_not_copied() -> None:
    kept, _ = store(a=256)
    carry = Carry({"a": torch.arange(8.0)})
    kept.keep(carry)
    first = carry.tensors["a"]
    kept.keep(carry)
    assert carry.tensors["a"] is first


def test_a_stage_that_declared_too_little_is_named() -> None:
    kept, _ = store(a=256)
    with pytest.raises(AssertionError, match="'a' carries 260 bytes"):
        kept.keep(Carry({"a": torch.zeros(65)}))


def test_slots_of_a_batch_are_aligned_sums_over_rows() -> None:
    assert slot_sizes([{"a": 100, "b": 256}, {"a": 200}]) == {"a": 512, "b": 256}
