"""Keeps the carry of an open batch in leased memory: a slot of fixed size for each of its tensors."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from hemiola.core.memory.lease import Lease

from .stage import Carry

_ALIGNMENT = 256


def slot_sizes(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Bytes of each slot for a batch, from what each of its rows may add to each tensor; aligned."""
    sizes: dict[str, int] = {}
    for row in rows:
        for name, nbytes in row.items():
            sizes[name] = sizes.get(name, 0) + nbytes
    return {name: -(-nbytes // _ALIGNMENT) * _ALIGNMENT for name, nbytes in sizes.items()}


class CarryStore:
    """Fields: the lease, of at least the sum of all slots; where each slot starts, and how long it is."""

    def __init__(self, lease: Lease, sizes: Mapping[str, int]) -> None:
        self.lease = lease
        self._sizes = sizes
        self._starts: dict[str, int] = {}
        start = 0
        for name, nbytes in sizes.items():
            self._starts[name] = start
            start += nbytes
        self._bytes = lease.tensor((start,), torch.uint8)

    def keep(self, carry: Carry) -> None:
        """Moves every tensor of the carry into its slot, strides and all; those that lie there already stay."""
        moves: list[tuple[str, Tensor, Tensor]] = []
        for name, tensor in carry.tensors.items():
            slot = self._slot(name, tensor)
            if slot.data_ptr() == tensor.data_ptr() and slot.stride() == tensor.stride():
                continue
            moves.append((name, slot, tensor.clone() if self._is_inside(tensor) else tensor))
        for name, slot, tensor in moves:
            carry.tensors[name] = slot.copy_(tensor)

    def _slot(self, name: str, tensor: Tensor) -> Tensor:
        start, nbytes = self._starts[name], tensor.numel() * tensor.element_size()
        assert nbytes <= self._sizes[name], (
            f"'{name}' carries {nbytes} bytes {tuple(tensor.shape)}, and its stage declared {self._sizes[name]}"
        )
        flat = self._bytes[start : start + nbytes].view(tensor.dtype)
        if tensor.is_contiguous():
            return flat.view(tensor.shape)
        return flat.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride(), flat.storage_offset())

    def _is_inside(self, tensor: Tensor) -> bool:
        """Whether it is a view of the arena, so that moving another tensor could overwrite it."""
        return tensor.untyped_storage().data_ptr() == self._bytes.untyped_storage().data_ptr()
