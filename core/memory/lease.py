"""Leases: rights to contiguous runs of the arena's bytes. Knows nothing of placement, eviction order or pages."""

import math
from collections.abc import Callable, Hashable, Sequence

import torch

from ..device import Writer
from ..step import Slot, Work


class Lease:
    """A right to `nbytes` contiguous bytes that start at a multiple of 256.

    Fields:
        start: offset in the arena's buffer.
        nbytes: what was asked for.
        owner: a request's id, or `condition:...` and the like, for the ledger.
        writer: (lane, sequence) of the last launch that wrote here; None while none did.
    """

    __slots__ = ("_buffer", "_on_release", "_views", "is_released", "nbytes", "owner", "start", "writer")

    def __init__(
        self, buffer: torch.Tensor, start: int, nbytes: int, owner: str, on_release: Callable[["Lease"], None]
    ) -> None:
        self._buffer = buffer
        self._on_release = on_release
        self._views: dict[tuple[tuple[int, ...], torch.dtype], torch.Tensor] = {}
        self.start = start
        self.nbytes = nbytes
        self.owner = owner
        self.writer: Writer | None = None
        self.is_released = False

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous view from the lease's start. Equal asks get the same tensor.

        Raises:
            ValueError: the lease is released or too small for it.
        """
        key = (tuple(shape), dtype)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._make_view(*key)
        return view

    def _make_view(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        if self.is_released:
            raise ValueError(f"The lease of '{self.owner}' is released.")
        if size > self.nbytes:
            raise ValueError(f"{tuple(shape)} of {dtype} is {size} bytes; '{self.owner}' leased {self.nbytes}.")
        return self._buffer[self.start : self.start + size].view(dtype).view(shape)

    def written(self, slot: Slot) -> None:
        """Remembers the last writer."""
        self.writer = (slot.lane, slot.sequence)

    def lock(self) -> None:
        """One more user."""
        raise ValueError(f"The lease of '{self.owner}' is not a shared one.")

    def unlock(self) -> None:
        """One user less."""
        raise ValueError(f"The lease of '{self.owner}' is not a shared one.")

    def release(self) -> None:
        """Gives the bytes back, once; they retire until every step in flight is complete."""
        if not self.is_released:
            self.is_released = True
            self._views.clear()
            self._on_release(self)


class SharedLease(Lease):
    """A lease that several use under a key, and that may be evicted while nobody does.

    `release` forgets the key at once, whoever uses it; the bytes are free when the last user has unlocked.

    Fields:
        key: what it is found by.
        saves, cost_key: the work that keeping it saves.
        num_locks: how many use it, or used it in a step that is still in flight.
        price: seconds per byte that keeping it is worth, as of its last use (see evict.py).
    """

    __slots__ = ("_on_unlock", "cost_key", "key", "num_locks", "price", "saves")

    def __init__(
        self,
        buffer: torch.Tensor,
        start: int,
        nbytes: int,
        on_release: Callable[[Lease], None],
        *,
        owner: str,
        key: Hashable,
        saves: Work,
        cost_key: Hashable,
        on_unlock: Callable[["SharedLease"], None],
    ) -> None:
        super().__init__(buffer, start, nbytes, f"{owner}:{hash(key) & 0xFFFFFFFF:08x}", on_release)
        self._on_unlock = on_unlock
        self.key = key
        self.saves = saves
        self.cost_key = cost_key
        self.num_locks = 1
        self.price = 0.0

    def lock(self) -> None:
        self.num_locks += 1

    def unlock(self) -> None:
        self._on_unlock(self)
