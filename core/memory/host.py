"""The host tier: a bounded buffer in host memory (pinned beside a GPU) for what leaves the device for a while.

Copies are plain bytes of a tensor and come back bit-equal. Beside a GPU they are enqueued, and nobody waits for them:
all copies come one after another, and after and before all steps (`InFlight.outside`). Knows nothing of what they mean.
"""

from typing import Protocol

import torch

from ..device import InFlight
from ..step import Shortfall
from .extents import Extents, aligned


class HostCopy:
    """The bytes of one tensor in host memory, which may be written and read some rows at a time.

    There may be thousands, of a few KiB each: each keeps its place, and no tensor of its own.
    """

    __slots__ = ("_dtype", "_shape", "_tier", "is_released", "nbytes", "owner", "start")

    def __init__(self, tier: "HostTier", start: int, shape: torch.Size, dtype: torch.dtype, owner: str) -> None:
        self._tier = tier
        self._shape, self._dtype = shape, dtype
        self.nbytes = shape.numel() * dtype.itemsize
        self.owner = owner
        self.start = start
        self.is_released = False

    def store_rows(self, first: int, tensor: torch.Tensor) -> None:
        """Writes the rows from `first` on, along the first dimension, from a tensor of the device."""
        self._copy(self._view()[first : first + len(tensor)], tensor)

    def load_rows(self, first: int, tensor: torch.Tensor) -> None:
        """Writes the rows from `first` on into a tensor."""
        self._copy(tensor, self._view()[first : first + len(tensor)])

    def load_into(self, tensor: torch.Tensor) -> None:
        """Writes the bytes back into a tensor of the same shape and dtype."""
        if (tensor.shape, tensor.dtype) != (self._shape, self._dtype):
            raise ValueError(f"A copy of {tuple(self._shape)} {self._dtype} cannot load into {tuple(tensor.shape)}.")
        self._copy(tensor, self._view())

    def release(self) -> None:
        """Gives the host bytes back, once."""
        if not self.is_released:
            self.is_released = True
            self._tier._give_back(self)

    def _copy(self, to: torch.Tensor, of: torch.Tensor) -> None:
        with self._tier.clock.outside():
            to.copy_(of, non_blocking=True)

    def _view(self) -> torch.Tensor:
        if self.is_released:
            raise ValueError(f"The host copy of '{self.owner}' is released.")
        return self._tier.buffer[self.start : self.start + self.nbytes].view(self._dtype).view(self._shape)


class HostTenant(Protocol):
    """Somebody whose copies are only a cache."""

    def next_copy_price(self) -> float | None:
        """The price of what `drop_copy` would release; None when there is nothing."""
        ...

    def drop_copy(self) -> None:
        """Releases the cheapest copy, with what belongs to it."""
        ...


class HostTier:
    """`nbytes` of host memory; 0 means there is none and every `store` falls short.

    When a copy does not fit, tenants release copies that are only a cache, the cheapest first.
    """

    def __init__(self, nbytes: int, *, is_pinned: bool = False, clock: InFlight | None = None) -> None:
        self.nbytes = nbytes
        self.clock = clock or InFlight()
        self.buffer = torch.empty(nbytes, dtype=torch.uint8, pin_memory=is_pinned)
        self.copies: dict[int, HostCopy] = {}
        self.tenants: list[HostTenant] = []
        self._extents = Extents(nbytes, max(nbytes, 1))

    @property
    def num_free_bytes(self) -> int:
        return self._extents.num_free_bytes

    def store(self, tensor: torch.Tensor, owner: str) -> HostCopy | Shortfall:
        """A copy of a tensor of the device; a Shortfall when the tier is full of what must not be dropped."""
        copy = self.reserve(tensor.shape, tensor.dtype, owner)
        if isinstance(copy, HostCopy):
            copy._copy(copy._view(), tensor)
        return copy

    def reserve(self, shape: torch.Size, dtype: torch.dtype, owner: str) -> HostCopy | Shortfall:
        """Room for a copy of such a tensor, whose rows are to be stored; or a Shortfall, likewise."""
        size = aligned(shape.numel() * dtype.itemsize)
        start = self._extents.place(size)
        while start is None:
            if size > self.nbytes or not self._drop_cheapest():
                return Shortfall(size)
            start = self._extents.place(size)
        self._extents.take(start, size)
        self.copies[start] = copy = HostCopy(self, start, shape, dtype, owner)
        return copy

    def _drop_cheapest(self) -> bool:
        priced = ((tenant.next_copy_price(), tenant) for tenant in self.tenants)
        found = min(((p, t) for p, t in priced if p is not None), key=lambda found: found[0], default=None)
        if found is not None:
            found[1].drop_copy()
        return found is not None

    def check(self) -> None:
        """Asserts that every byte is either free or one copy's."""
        taken = [(copy.start, copy.start + aligned(copy.nbytes)) for copy in self.copies.values()]
        end = 0
        for start, after in sorted([*taken, *self._extents]):
            assert start == end, f"Host bytes {min(start, end)} to {max(start, end)} are lost or owned twice."
            end = after
        assert end == self.nbytes, f"Host bytes {end} to {self.nbytes} are lost."

    def _give_back(self, copy: HostCopy) -> None:
        del self.copies[copy.start]
        self._extents.give(copy.start, aligned(copy.nbytes))
