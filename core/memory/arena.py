"""The arena: one buffer per device, which page classes and leases share.

One thread uses it. It knows owners by name only: nothing of models or requests.
"""

from collections.abc import Callable, Hashable, Sequence

import torch

from ..device import InFlight
from ..errors import CannotFit
from ..step import Shortfall, Work
from .evict import PageTenant, Prices
from .extents import ALIGNMENT, aligned
from .host import HostTier
from .lease import Lease, SharedLease
from .ledger import Ledger, count_kinds
from .pages import PageClass
from .room import Need, Room

MIN_SPANS = 8
MIN_PAGES_PER_SPAN = 8
USUAL_SPAN_BYTES = 2 * 2**20


def _seconds_per_token(_: Hashable, work: Work) -> float:
    return 1e-3 * max(work.new_tokens, 1)


class Arena:
    """`nbytes` of one device under one budget.

    Args:
        span_bytes: the unit in which page classes and leases trade room. Grows with the page classes; the default is
            a 64th of the arena, at most 2 MiB.
        host_bytes: of the host tier.
        clock: what is in flight on the device; released bytes retire by it.

    Fields:
        buffer: uint8 [nbytes]; its first byte is 256-byte aligned.
        host: the host tier.
        prices: what eviction goes by.
    """

    def __init__(
        self,
        nbytes: int,
        *,
        device: str | torch.device = "cpu",
        span_bytes: int | None = None,
        host_bytes: int = 0,
        clock: InFlight | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.nbytes = nbytes // ALIGNMENT * ALIGNMENT
        raw = torch.empty(self.nbytes + ALIGNMENT, dtype=torch.uint8, device=self.device)
        base = -raw.data_ptr() % ALIGNMENT
        self.buffer = raw[base : base + self.nbytes]
        self.clock = clock or InFlight()
        self.host = HostTier(host_bytes, is_pinned=self.device.type == "cuda", clock=self.clock)
        self.prices = Prices(_seconds_per_token)
        span_bytes = aligned(span_bytes or min(self.nbytes // 64, USUAL_SPAN_BYTES))
        self._room = Room(self.nbytes, span_bytes, self.clock, self.prices)
        self._shared: dict[Hashable, SharedLease] = {}

    @property
    def seconds(self) -> Callable[[Hashable, Work], float]:
        """The cost model by which things are valued: `seconds(cost_key, work)`. Settable."""
        return self.prices.seconds

    @seconds.setter
    def seconds(self, seconds: Callable[[Hashable, Work], float]) -> None:
        self.prices.seconds = seconds

    @property
    def version(self) -> int:
        """Grows whenever bytes became free or evictable: the moment to try queued and parked requests again."""
        return self._room.version

    @property
    def span_bytes(self) -> int:
        return self._room.span_bytes

    # Page classes

    def add_page_class(self, name: str, page_bytes: int) -> PageClass:
        """A new class of pages, at load time: spans grow until one holds 8 of its pages.

        Raises:
            CannotFit: fewer than 8 spans would be left, or spans would have to grow while pages are held.
            ValueError: the name is taken.
        """
        if name in self._room.page_classes:
            raise ValueError(f"There is a page class '{name}' already.")
        span_bytes = max(aligned((MIN_PAGES_PER_SPAN + 1) * page_bytes), self.span_bytes)
        if self.nbytes // span_bytes < MIN_SPANS:
            least = MIN_SPANS * span_bytes
            raise CannotFit(
                f"The smallest KV cache of '{name}'",
                least,
                self.nbytes,
                f"Raise the engine's 'memory_bytes' to {-(-least // 2**20)} MiB or more.",
            )
        if span_bytes > self.span_bytes and not self._room.recut(span_bytes):
            raise CannotFit(
                f"A part of the KV cache of '{name}'",
                span_bytes,
                self.span_bytes,
                f"Other models' parts are that small, and in use already: name '{name}' before them.",
            )
        self._room.page_classes[name] = page_class = PageClass(
            name, page_bytes, buffer=self.buffer, span_bytes=span_bytes, land=self._room, clock=self.clock
        )
        return page_class

    @property
    def page_classes(self) -> Sequence[PageClass]:
        return tuple(self._room.page_classes.values())

    def add_tenant(self, tenant: PageTenant) -> None:
        """Registers somebody who holds pages that may be evicted."""
        self._room.tenants.append(tenant)
        self.host.tenants.append(tenant)

    def became_evictable(self) -> None:
        """A tenant can give more pages back than before."""
        self._room.became_free()

    # General leases

    def lease(self, nbytes: int, owner: str) -> Lease | Shortfall:
        """A contiguous run. Evicts what nobody uses and moves pages aside, if it must."""
        leases = self.lease_all((nbytes,), owner)
        return leases if isinstance(leases, Shortfall) else leases[0]

    def lease_all(self, sizes: Sequence[int], owner: str) -> list[Lease] | Shortfall:
        """All of them, in the order of `sizes`, or none.

        A Shortfall may also mean that pages were moved aside and still retire: the room is kept for a few steps, and
        `version` grows when it is free.
        """
        starts = self._room.find(sizes)
        if isinstance(starts, Shortfall):
            return starts
        leases = [
            Lease(self.buffer, start, nbytes, owner, self._released)
            for start, nbytes in zip(starts, sizes, strict=True)
        ]
        self._room.leases.update(zip(starts, leases, strict=True))
        return leases

    def put_back(self, lease: Lease) -> None:
        """Ends a lease that no step was launched with: its bytes are free at once, whatever is in flight."""
        assert lease.writer is None, f"Bytes of '{lease.owner}' were written."
        lease.is_released = True
        lease._views.clear()
        self._room.free(lease)

    def share(
        self, key: Hashable, nbytes: int, saves: Work, cost_key: Hashable, *, owner: str = "condition"
    ) -> Lease | Shortfall:
        """A lease that others find under `key`, locked once for the caller, and evictable when nobody locks it.

        Its worth is what `saves` costs in seconds. `owner` is its first name in the ledger.

        Raises:
            ValueError: there is one under that key; `find` it.
        """
        if key in self._shared:
            raise ValueError(f"There is a shared lease under {key!r} already.")
        starts = self._room.find((nbytes,))
        if isinstance(starts, Shortfall):
            return starts
        lease = SharedLease(
            self.buffer, starts[0], nbytes, self._released,
            owner=owner, key=key, saves=saves, cost_key=cost_key, on_unlock=self._unlocked,
        )  # fmt: skip
        self._touch(lease)
        self._room.leases[lease.start] = self._shared[key] = lease
        return lease

    def find(self, key: Hashable) -> Lease | None:
        """The shared lease under `key`, locked for the caller; None when it was evicted or never made."""
        lease = self._shared.get(key)
        if lease is not None:
            lease.lock()
            self._touch(lease)
        return lease

    def _touch(self, lease: SharedLease) -> None:
        lease.price = self.prices.floor + self.prices.worth(lease.cost_key, lease.saves, lease.nbytes)

    def _unlocked(self, lease: SharedLease) -> None:
        self.clock.retire(lambda: self._is_quiet(lease))

    def _is_quiet(self, lease: SharedLease) -> None:
        assert lease.num_locks > 0, f"'{lease.owner}' was unlocked more often than locked."
        lease.num_locks -= 1
        self._room.became_free()
        if lease.is_released and lease.num_locks == 0:
            self._room.free(lease)

    def _released(self, lease: Lease) -> None:
        if not isinstance(lease, SharedLease):
            self.clock.retire(lambda: self._room.free(lease))
            return
        del self._shared[lease.key]
        if lease.num_locks == 0:
            self._room.free(lease)

    # Asking

    def can_lease(self, need: Need) -> bool:
        """Whether all of it could be had now, evicting what nobody uses.

        Exact for general leases alone and for pages of one class alone; a good guess for mixtures. Where pages must be
        moved aside while steps are in flight, the lease itself may fall short once more.
        """
        return self._room.could_have(need)

    def could_ever_lease(self, need: Need) -> bool:
        """Whether all of it could be had if the arena were empty."""
        return self._room.could_ever_have(need)

    @property
    def ledger(self) -> Ledger:
        """Who owns every byte at the moment."""
        return Ledger(self._room, self.host)

    @property
    def kinds(self) -> dict[str, int]:
        """As `ledger.kinds`, at a cost that does not grow with the number of pages held."""
        return dict(count_kinds(self._room))
