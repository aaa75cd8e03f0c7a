"""The arena: one buffer per device, cut into spans that page classes and leases share.

Everything here is host bookkeeping over one allocation. It knows owners by name only: nothing of models or requests.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..device import InFlight
from ..errors import CannotFit
from ..step import Shortfall, Work
from .evict import Evictor, PageTenant, Segment, cheapest_window
from .extents import ALIGNMENT, Extents, aligned
from .host import HostTier
from .lease import Lease, SharedLease
from .ledger import Ledger
from .pages import PageClass

MIN_SPANS = 8
MIN_PAGES_PER_SPAN = 8


@dataclass(frozen=True, slots=True)
class Need:
    """What somebody would lease: general leases of these sizes, and so many pages per class name."""

    general: tuple[int, ...] = ()
    pages: Mapping[str, int] = field(default_factory=dict)


def _seconds_per_token(_: Hashable, work: Work) -> float:
    return 1e-3 * max(work.new_tokens, 1)


class Arena:
    """`nbytes` of one device under one budget.

    Fields:
        buffer: uint8 [nbytes]; its first byte is 256-byte aligned.
        version: grows whenever bytes became free or evictable: the moment to try queued and parked requests again.
        host: the host tier of `host_bytes`.
        clock: what is in flight; released bytes retire by it.
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
        self.host = HostTier(host_bytes, is_pinned=self.device.type == "cuda")
        self.version = 0
        self.evictor = Evictor(_seconds_per_token)
        self.page_classes: dict[str, PageClass] = {}
        self.leases: dict[int, Lease] = {}
        self.tenants: list[PageTenant] = []
        self._shared: dict[Hashable, SharedLease] = {}
        self.span_bytes = aligned(span_bytes or self.nbytes // 64)
        self._extents = Extents(self.nbytes, self.span_bytes)

    @property
    def seconds(self) -> Callable[[Hashable, Work], float]:
        """The cost model, by which the evictor values things: `seconds(cost_key, work)`."""
        return self.evictor.seconds

    @seconds.setter
    def seconds(self, seconds: Callable[[Hashable, Work], float]) -> None:
        self.evictor.seconds = seconds

    # Page classes

    def add_page_class(self, name: str, page_bytes: int) -> PageClass:
        """A new class of pages, at load time: spans grow until one holds 8 of its pages.

        Raises:
            CannotFit: fewer than 8 spans would be left, or spans in use are too small for the pages.
            ValueError: the name is taken.
        """
        if name in self.page_classes:
            raise ValueError(f"There is a page class '{name}' already.")
        span_bytes = aligned((MIN_PAGES_PER_SPAN + 1) * page_bytes)
        if self.nbytes // max(span_bytes, self.span_bytes) < MIN_SPANS:
            largest = self.nbytes // MIN_SPANS // ALIGNMENT * ALIGNMENT // (MIN_PAGES_PER_SPAN + 1)
            what = (
                f"Page class '{name}' ({MIN_SPANS} spans of {MIN_PAGES_PER_SPAN} pages; at most {largest} bytes a page)"
            )
            raise CannotFit(what, span_bytes * MIN_SPANS, self.nbytes)
        if span_bytes > self.span_bytes:
            self._recut(name, span_bytes)
        new = PageClass(name, page_bytes, buffer=self.buffer, span_bytes=self.span_bytes, land=self, clock=self.clock)
        self.page_classes[name] = new
        return new

    def _recut(self, name: str, span_bytes: int) -> None:
        self._give_up_empty_spans()
        if any(c.has_spans for c in self.page_classes.values()):
            raise CannotFit(
                f"Page class '{name}' (spans are in use; load the largest pages first)", span_bytes, self.span_bytes
            )
        self.span_bytes = self._extents.span_bytes = span_bytes
        for page_class in self.page_classes.values():
            page_class.recut(span_bytes)

    # General leases

    def lease(self, nbytes: int, owner: str) -> Lease | Shortfall:
        """A contiguous run. Evicts what nobody uses, if it must."""
        start = self._find_room(aligned(nbytes))
        if start is None:
            return Shortfall(nbytes)
        lease = Lease(self.buffer, start, nbytes, owner, self._released)
        self.leases[start] = lease
        return lease

    def lease_all(self, sizes: Sequence[int], owner: str) -> list[Lease] | Shortfall:
        """All of them, in the order of `sizes`, or none."""
        taken: dict[int, Lease] = {}
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            lease = self.lease(sizes[i], owner)
            if isinstance(lease, Shortfall):
                for other in taken.values():
                    other.is_released = True
                    self._free(other)
                return lease
            taken[i] = lease
        return [taken[i] for i in range(len(sizes))]

    def share(self, key: Hashable, nbytes: int, saves: Work, cost_key: Hashable) -> Lease | Shortfall:
        """A lease that others find under `key`, locked once for the caller and evictable when nobody locks it.

        Its worth is what `saves` costs in seconds.

        Raises:
            ValueError: there is one under that key; `find` it.
        """
        if key in self._shared:
            raise ValueError(f"There is a shared lease under {key!r} already.")
        start = self._find_room(aligned(nbytes))
        if start is None:
            return Shortfall(nbytes)
        lease = SharedLease(
            self.buffer,
            start,
            nbytes,
            self._released,
            key=key,
            saves=saves,
            cost_key=cost_key,
            on_unlock=self._unlocked,
        )
        self._touch(lease)
        self.leases[start] = self._shared[key] = lease
        return lease

    def find(self, key: Hashable) -> Lease | None:
        """The shared lease under `key`, locked for the caller; None when it was evicted or never made."""
        lease = self._shared.get(key)
        if lease is not None:
            lease.num_locks += 1
            self._touch(lease)
        return lease

    # Asking

    def can_lease(self, need: Need) -> bool:
        """Whether all of it could be had now, evicting what nobody uses."""
        segments = self.segments()
        for nbytes in sorted(map(aligned, need.general), reverse=True):
            window = cheapest_window(segments, nbytes)
            if window is None:
                return False
            segments = _without(segments, window, nbytes)
        return all(self._can_take(name, count, segments) for name, count in need.pages.items())

    def could_ever_lease(self, need: Need) -> bool:
        """Whether all of it could be had if the arena were empty."""
        spans = sum(self.page_classes[name].num_spans_for(count) for name, count in need.pages.items())
        return spans * self.span_bytes + sum(map(aligned, need.general)) <= self.nbytes

    def segments(self) -> list[Segment]:
        """What the arena consists of, in address order."""
        found = [Segment(start, end, 0.0, None) for start, end in self._extents]
        for lease in self.leases.values():
            cost = math.inf
            if isinstance(lease, SharedLease) and lease.num_locks == 0:
                cost = self.evictor.cost(lease.price, lease.nbytes)
            found.append(Segment(lease.start, lease.start + aligned(lease.nbytes), cost, lease))
        for page_class in self.page_classes.values():
            for i in page_class.spans:
                cost = 0.0 if page_class.is_empty(i) else math.inf
                found.append(Segment(i * self.span_bytes, (i + 1) * self.span_bytes, cost, page_class))
        return sorted(found, key=lambda segment: segment.start)

    @property
    def ledger(self) -> Ledger:
        """Who owns every byte at the moment."""
        return Ledger(self)

    # For page classes

    def claim_span(self, page_class: PageClass) -> int | None:
        """A wholly free span for the class."""
        index = self._extents.place_span()
        if index is None:
            self._give_up_empty_spans(but=page_class)
            index = self._extents.place_span()
        if index is not None:
            self._extents.take(index * self.span_bytes, self.span_bytes)
        return index

    def return_span(self, index: int) -> None:
        """A class has no use for the span."""
        self._extents.give(index * self.span_bytes, self.span_bytes)

    def evict_page(self, page_class: PageClass) -> bool:
        """Evicts whatever is cheapest for the class to get a page or a span; False when all is in use."""
        if any(tenant.evict(page_class) for tenant in self.tenants):
            return True
        for i in range(self.nbytes // self.span_bytes):
            start, end = i * self.span_bytes, (i + 1) * self.span_bytes
            inside = [s for s in self.segments() if s.start < end and s.end > start]
            if all(s.cost < math.inf and s.holder is not page_class for s in inside):
                self._clear(inside)
                return True
        return False

    # Inside

    def _find_room(self, size: int) -> int | None:
        start = self._extents.place(size)
        if start is None:
            self._give_up_empty_spans()
            start = self._extents.place(size)
        if start is None:
            window = cheapest_window(self.segments(), size)
            if window is None:
                return None
            self._clear(window)
            start = window[0].start
        self._extents.take(start, size)
        return start

    def _clear(self, window: Sequence[Segment]) -> None:
        for segment in window:
            if isinstance(segment.holder, SharedLease):
                self.evictor.evicted(segment.holder.price)
                segment.holder.release()

    def _give_up_empty_spans(self, but: PageClass | None = None) -> None:
        for page_class in self.page_classes.values():
            if page_class is not but:
                page_class.give_up_empty_spans()

    def _can_take(self, name: str, count: int, segments: Sequence[Segment]) -> bool:
        page_class = self.page_classes[name]
        have = page_class.num_free + sum(tenant.num_evictable(page_class) for tenant in self.tenants)
        for i in range(self.nbytes // self.span_bytes):
            start, end = i * self.span_bytes, (i + 1) * self.span_bytes
            inside = [s for s in segments if s.start < end and s.end > start]
            if all(s.cost < math.inf and s.holder is not page_class for s in inside):
                have += len(page_class.ids_in(i))
        return have >= count

    def _touch(self, lease: SharedLease) -> None:
        lease.price = self.evictor.price(lease.cost_key, lease.saves, lease.nbytes)

    def _unlocked(self, lease: SharedLease) -> None:
        self.clock.retire(lambda: self._unlocked_for_good(lease))

    def _unlocked_for_good(self, lease: SharedLease) -> None:
        lease.num_locks -= 1
        self.version += 1
        if lease.is_released and lease.num_locks == 0:
            self._free(lease)

    def _released(self, lease: Lease) -> None:
        if not isinstance(lease, SharedLease):
            self.clock.retire(lambda: self._free(lease))
            return
        del self._shared[lease.key]
        if lease.num_locks == 0:
            self._free(lease)

    def _free(self, lease: Lease) -> None:
        del self.leases[lease.start]
        self._extents.give(lease.start, aligned(lease.nbytes))
        self.version += 1


def _without(segments: Sequence[Segment], window: Sequence[Segment], nbytes: int) -> list[Segment]:
    """The segments after `nbytes` at the start of the window were leased."""
    start, end = window[0].start, window[-1].end
    taken = [Segment(start, start + nbytes, math.inf, None), Segment(start + nbytes, end, 0.0, None)]
    inside = set(window)
    i = segments.index(window[0])
    return [
        *(s for s in segments[:i]),
        *(s for s in taken if s.end > s.start),
        *(s for s in segments[i:] if s not in inside),
    ]
