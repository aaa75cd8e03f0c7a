"""The arena: one buffer per device, cut into spans that page classes and leases share.

Everything here is host bookkeeping over one allocation, on one thread. It knows owners by name only: nothing of models
or requests.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from ..device import InFlight
from ..errors import CannotFit
from ..step import Shortfall, Work
from .evict import PageTenant, Prices
from .extents import ALIGNMENT, Extents, aligned
from .host import HostTier
from .layout import Layout, Segment
from .lease import Lease, SharedLease
from .ledger import Ledger
from .pages import PageClass

MIN_SPANS = 8
MIN_PAGES_PER_SPAN = 8
MOVE_SECONDS_PER_BYTE = 1e-10
"""What moving a page out of the way costs, roughly: only to prefer spans with less to move."""
RESERVED_FOR_STEPS = 8
"""Completed steps after which room that was made for a lease, and not asked for again, is anybody's: two lanes with
two steps in flight each, and as many to come back in."""


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
        prices: what the evictor goes by.
        leases: by offset, those released ones too that still retire.
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
        self.prices = Prices(_seconds_per_token)
        self.page_classes: dict[str, PageClass] = {}
        self.leases: dict[int, Lease] = {}
        self.tenants: list[PageTenant] = []
        self.span_bytes = aligned(span_bytes or self.nbytes // 64)
        self._extents = Extents(self.nbytes, self.span_bytes)
        self._shared: dict[Hashable, SharedLease] = {}
        self._reserved: set[int] = set()
        self._reserved_until = 0
        self._looks_to_skip = 0

    @property
    def seconds(self) -> Callable[[Hashable, Work], float]:
        """The cost model by which the evictor values things: `seconds(cost_key, work)`. Settable."""
        return self.prices.seconds

    @seconds.setter
    def seconds(self, seconds: Callable[[Hashable, Work], float]) -> None:
        self.prices.seconds = seconds

    @property
    def num_spans(self) -> int:
        return self.nbytes // self.span_bytes

    # Page classes

    def add_page_class(self, name: str, page_bytes: int) -> PageClass:
        """A new class of pages, at load time: spans grow until one holds 8 of its pages.

        Raises:
            CannotFit: fewer than 8 spans would be left, or spans would have to grow while pages are held.
            ValueError: the name is taken.
        """
        if name in self.page_classes:
            raise ValueError(f"There is a page class '{name}' already.")
        span_bytes = aligned((MIN_PAGES_PER_SPAN + 1) * page_bytes)
        if self.nbytes // max(span_bytes, self.span_bytes) < MIN_SPANS:
            largest = self.nbytes // MIN_SPANS // ALIGNMENT * ALIGNMENT // (MIN_PAGES_PER_SPAN + 1)
            raise CannotFit(
                f"Page class '{name}' with pages of {page_bytes} bytes (pages of {largest} bytes would fit; "
                f"{MIN_SPANS} spans of {MIN_PAGES_PER_SPAN} pages are the least)",
                MIN_SPANS * max(span_bytes, self.span_bytes),
                self.nbytes,
            )
        if span_bytes > self.span_bytes:
            self._recut(name, span_bytes)
        self.page_classes[name] = page_class = PageClass(
            name, page_bytes, buffer=self.buffer, span_bytes=self.span_bytes, land=self, clock=self.clock
        )
        return page_class

    def _recut(self, name: str, span_bytes: int) -> None:
        self._give_up_empty_spans()
        if any(list(other.spans) for other in self.page_classes.values()):
            raise CannotFit(
                f"A span for page class '{name}' (pages are held already: load the model with the largest pages first)",
                span_bytes,
                self.span_bytes,
            )
        self.span_bytes = self._extents.span_bytes = span_bytes
        for other in self.page_classes.values():
            other.recut(span_bytes)

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
        starts = self._find_room(sizes)
        if isinstance(starts, Shortfall):
            return starts
        leases = [Lease(self.buffer, *at, owner, self._released) for at in zip(starts, sizes, strict=True)]
        self.leases.update(zip(starts, leases, strict=True))
        return leases

    def share(self, key: Hashable, nbytes: int, saves: Work, cost_key: Hashable) -> Lease | Shortfall:
        """A lease that others find under `key`, locked once for the caller, and evictable when nobody locks it.

        Its worth is what `saves` costs in seconds.

        Raises:
            ValueError: there is one under that key; `find` it.
        """
        if key in self._shared:
            raise ValueError(f"There is a shared lease under {key!r} already.")
        starts = self._find_room((nbytes,))
        if isinstance(starts, Shortfall):
            return starts
        lease = SharedLease(
            self.buffer, starts[0], nbytes, self._released,
            key=key, saves=saves, cost_key=cost_key, on_unlock=self._unlocked,
        )  # fmt: skip
        lease.price = self.prices.price(cost_key, saves, nbytes)
        self.leases[lease.start] = self._shared[key] = lease
        return lease

    def find(self, key: Hashable) -> Lease | None:
        """The shared lease under `key`, locked for the caller; None when it was evicted or never made."""
        lease = self._shared.get(key)
        if lease is not None:
            lease.lock()
            lease.price = self.prices.price(lease.cost_key, lease.saves, lease.nbytes)
        return lease

    # Asking

    def can_lease(self, need: Need) -> bool:
        """Whether all of it could be had now, evicting what nobody uses.

        Where pages must be moved aside while steps are in flight, the lease itself may fall short once more.
        """
        if not need.general and all(self.page_classes[name].num_free >= count for name, count in need.pages.items()):
            return True
        if not need.pages and (starts := self._take_holes(need.general)) is not None:
            self._give_back(starts, need.general)
            return True
        layout = self._layout()
        if any(layout.place_run(size) is None for size in sorted(map(aligned, need.general), reverse=True)):
            return False
        for name, count in need.pages.items():
            missing = count - layout.spare[name]
            layout.spare[name] = max(-missing, 0)
            if missing > 0 and layout.place_spans(name, missing, self._pages_per_span(name)) is None:
                return False
        return True

    def could_ever_lease(self, need: Need) -> bool:
        """Whether all of it could be had if the arena were empty."""
        span = 0
        for name, count in need.pages.items():
            while count > 0:
                if span == self.num_spans:
                    return False
                count -= len(self.page_classes[name].ids_in(span))
                span += 1
        return sum(map(aligned, need.general)) <= self.nbytes - span * self.span_bytes

    def segments(self) -> list[Segment]:
        """What the arena consists of, in address order: free ranges, leases, spans of page classes."""
        found = [Segment(start, end) for start, end in self._extents]
        for lease in self.leases.values():
            cost = math.inf
            if isinstance(lease, SharedLease) and lease.num_locks == 0:
                cost = self.prices.cost(lease.price, lease.nbytes)
            found.append(Segment(lease.start, lease.start + aligned(lease.nbytes), cost, lease))
        for page_class in self.page_classes.values():
            found.extend(self._segments_of(page_class))
        return sorted(found, key=lambda segment: segment.start)

    @property
    def ledger(self) -> Ledger:
        """Who owns every byte at the moment."""
        return Ledger(self)

    # For page classes

    def became_free(self) -> None:
        """Pages became free."""
        self.version += 1

    def return_span(self, index: int) -> None:
        """A class has no use for the span."""
        self._extents.give(index * self.span_bytes, self.span_bytes)
        self.version += 1

    def make_room_for_pages(self, page_class: PageClass, count: int) -> bool:
        """Spans for the class, or evictions, until `count` of its pages are free; False when that cannot be."""
        evictable = sum(tenant.num_evictable(page_class) for tenant in self.tenants)
        if page_class.num_free + evictable < count and not self.can_lease(Need(pages={page_class.name: count})):
            return False
        while page_class.num_free < count:
            if not self._make_room_for_one(page_class):
                return False
        return True

    # Inside: room for pages

    def _make_room_for_one(self, page_class: PageClass) -> bool:
        """The next best source of free pages for the class: a free span, an eviction, a span of others."""
        if self.clock.num_completed >= self._reserved_until:
            self._reserved.clear()
        return (
            self._add_span(page_class, self._extents.place_span(but=self._reserved))
            or (self._give_up_empty_spans(but=page_class) and self._make_room_for_one(page_class))
            or self._clear_span_for(page_class)
            or self._evict_page(page_class)
            or self._add_span(page_class, self._extents.place_span())
        )

    def _add_span(self, page_class: PageClass, index: int | None) -> bool:
        if index is None:
            return False
        self._extents.take(index * self.span_bytes, self.span_bytes)
        page_class.add_span(index)
        return True

    def _clear_span_for(self, page_class: PageClass) -> bool:
        """Clears a span that others hold, if that costs less per page than evicting the class's own.

        Looking costs a pass over the arena. While it is in vain, a large arena is looked at less often.
        """
        own = self._cheapest_tenant(page_class)
        if own is not None and self._looks_to_skip > 0:
            self._looks_to_skip -= 1
            return False
        limit = math.inf if own is None else self.prices.cost(own[0], page_class.page_bytes)
        if limit <= 0.0:
            return False
        layout = self._layout()
        found = layout.place_spans(page_class.name, 1, self._pages_per_span(page_class.name), limit)
        if found is None:
            self._looks_to_skip = len(layout.segments) // 16
            return False
        index, segments = found[0]
        self._clear(segments)
        is_free = self._extents.is_free(index * self.span_bytes, self.span_bytes)
        return is_free and self._add_span(page_class, index)

    def _evict_page(self, page_class: PageClass) -> bool:
        found = self._cheapest_tenant(page_class)
        return found is not None and found[1].evict(page_class)

    def _cheapest_tenant(self, page_class: PageClass) -> tuple[float, PageTenant] | None:
        priced = ((tenant.next_price(page_class), tenant) for tenant in self.tenants)
        return min(((p, t) for p, t in priced if p is not None), key=lambda found: found[0], default=None)

    # Inside: room for leases

    def _find_room(self, sizes: Sequence[int]) -> list[int] | Shortfall:
        """Takes a run for each size, clearing what it must; their offsets."""
        starts = self._take_holes(sizes)
        if starts is None and self._give_up_empty_spans():
            starts = self._take_holes(sizes)
        return self._clear_room(sizes) if starts is None else starts

    def _take_holes(self, sizes: Sequence[int]) -> list[int] | None:
        """Takes free runs for all sizes, the largest first; None, and nothing is taken, when one has none."""
        starts = [0] * len(sizes)
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        for rank, i in enumerate(order):
            start = self._extents.place(aligned(sizes[i]))
            if start is None:
                done = order[:rank]
                self._give_back([starts[j] for j in done], [sizes[j] for j in done])
                return None
            self._extents.take(start, aligned(sizes[i]))
            starts[i] = start
        return starts

    def _give_back(self, starts: Iterable[int], sizes: Iterable[int]) -> None:
        for start, nbytes in zip(starts, sizes, strict=True):
            self._extents.give(start, aligned(nbytes))

    def _clear_room(self, sizes: Sequence[int]) -> list[int] | Shortfall:
        layout = self._layout()
        starts = [0] * len(sizes)
        to_clear: list[Segment] = []
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            segments = layout.place_run(aligned(sizes[i]))
            if segments is None:
                return Shortfall(sizes[i])
            starts[i] = segments[0].start
            to_clear += segments
        self._clear(to_clear)
        room = list(zip(starts, map(aligned, sizes), strict=True))
        if not all(self._extents.is_free(*run) for run in room):
            self._reserve(room)
            return Shortfall(sum(sizes))
        for run in room:
            self._extents.take(*run)
        return starts

    def _clear(self, segments: Iterable[Segment]) -> None:
        """Evicts leases and empties spans. Pages that had to move still retire when it returns."""
        spans: dict[PageClass, list[int]] = {}
        for segment in segments:
            if isinstance(segment.holder, SharedLease):
                self.prices.evicted(segment.holder.price)
                segment.holder.release()
            elif isinstance(segment.holder, PageClass):
                spans.setdefault(segment.holder, []).append(segment.start // self.span_bytes)
        for page_class, indices in spans.items():
            page_class.vacate(indices, partial(self._evict_page, page_class))

    def _reserve(self, room: Iterable[tuple[int, int]]) -> None:
        """Keeps page classes off the spans of room that is on its way, while there is another way for them."""
        self._reserved = {
            index
            for start, nbytes in room
            for index in range(start // self.span_bytes, -(-(start + nbytes) // self.span_bytes))
        }
        self._reserved_until = self.clock.num_completed + RESERVED_FOR_STEPS

    def _give_up_empty_spans(self, but: PageClass | None = None) -> bool:
        before = self._extents.num_free_bytes
        for page_class in self.page_classes.values():
            if page_class is not but:
                page_class.give_up_empty_spans()
        return self._extents.num_free_bytes > before

    # Inside: the layout

    def _layout(self) -> Layout:
        spare = {
            name: page_class.num_free + sum(tenant.num_evictable(page_class) for tenant in self.tenants)
            for name, page_class in self.page_classes.items()
        }
        return Layout(self.segments(), spare, self.span_bytes)

    def _segments_of(self, page_class: PageClass) -> Iterable[Segment]:
        found = self._cheapest_tenant(page_class)
        page_bytes = page_class.page_bytes
        evict_cost = 0.0 if found is None else self.prices.cost(found[0], page_bytes)
        for index in page_class.spans:
            num_pages = len(page_class.ids_in(index))
            num_free = page_class.num_free_in(index)
            cost = math.inf
            if num_free is not None:
                num_held = num_pages - num_free
                num_evicted = max(num_held - (page_class.num_free - num_free), 0)
                cost = num_evicted * evict_cost + num_held * page_bytes * MOVE_SECONDS_PER_BYTE
            start = index * self.span_bytes
            yield Segment(start, start + self.span_bytes, cost, page_class, page_class.name, num_pages)

    def _pages_per_span(self, name: str) -> list[int]:
        page_class = self.page_classes[name]
        return [len(page_class.ids_in(index)) for index in range(self.num_spans)]

    # Inside: shared and released leases

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
