"""Who has which bytes of an arena, and how room is made for more: free ranges, evictions, pages moved aside.

Everything here is host bookkeeping. It knows leases, page classes and tenants, but not what is asked for by whom.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeGuard

from ..device import InFlight
from ..step import Shortfall
from .evict import PageTenant, Prices
from .extents import Extents, aligned
from .layout import Layout, Segment
from .lease import Lease, SharedLease
from .pages import PageClass

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


class Room:
    """The bytes [0, nbytes).

    Fields:
        version: grows whenever bytes became free or evictable.
        leases: by offset, those released ones too that still retire.
        page_classes, tenants: who has spans, and who can give pages back.
    """

    def __init__(self, nbytes: int, span_bytes: int, clock: InFlight, prices: Prices) -> None:
        self.nbytes = nbytes
        self.span_bytes = span_bytes
        self.clock = clock
        self.prices = prices
        self.version = 0
        self.leases: dict[int, Lease] = {}
        self.page_classes: dict[str, PageClass] = {}
        self.tenants: list[PageTenant] = []
        self._extents = Extents(nbytes, span_bytes)
        self._reserved: set[int] = set()
        self._reserved_until = 0
        self._looks_to_skip = 0

    @property
    def num_spans(self) -> int:
        return self.nbytes // self.span_bytes

    def recut(self, span_bytes: int) -> bool:
        """Changes the size of spans; False, and nothing changes, while a page is held or retires."""
        self._give_up_empty_spans()
        if any(page_class.num_spans for page_class in self.page_classes.values()):
            return False
        self.span_bytes = self._extents.span_bytes = span_bytes
        for page_class in self.page_classes.values():
            page_class.recut(span_bytes)
        return True

    # For leases

    def find(self, sizes: Sequence[int]) -> list[int] | Shortfall:
        """Takes a run for each size, evicting and moving what it must; their offsets."""
        starts = self._take_holes(sizes)
        if starts is None and self._give_up_empty_spans():
            starts = self._take_holes(sizes)
        return self._clear_runs(sizes) if starts is None else starts

    def free(self, lease: Lease) -> None:
        """Nobody uses the lease's bytes any more."""
        del self.leases[lease.start]
        self._extents.give(lease.start, aligned(lease.nbytes))
        self.version += 1

    # For page classes

    def became_free(self) -> None:
        """Pages became free."""
        self.version += 1

    def return_span(self, index: int) -> None:
        """A class has no use for the span."""
        self._extents.give(index * self.span_bytes, self.span_bytes)
        self.version += 1

    def free_spans(self) -> Iterable[range]:
        """Runs of spans that no class has and no lease touches."""
        return self._extents.whole_spans()

    def make_for_pages(self, page_class: PageClass, count: int) -> bool:
        """Gets spans for the class, and evicts, until `count` of its pages are free; False when that cannot be."""
        in_free_spans = sum(map(len, self.free_spans())) * min(page_class.pages_per_span)
        has_enough = self._spare(page_class) + in_free_spans >= count
        if not has_enough and not self.could_have(Need(pages={page_class.name: count})):
            return False
        while page_class.num_ready < count:
            if not self._make_for_some_pages(page_class):
                if not self._reserved:
                    return False
                self._reserved.clear()
        return True

    # Asking

    def could_have(self, need: Need) -> bool:
        """Whether all of it could be had now, evicting and moving what may be."""
        lacking = {name: max(count - self._spare(self.page_classes[name]), 0) for name, count in need.pages.items()}
        if not need.general and not any(lacking.values()):
            return True
        if not need.pages and (starts := self._take_holes(need.general)) is not None:
            self._give_back(starts, need.general)
            return True
        nbytes = sum(map(aligned, need.general))
        nbytes += sum(count * self.page_classes[name].page_bytes for name, count in lacking.items())
        if nbytes > self._most_clearable():
            return False
        layout = self._layout()
        if any(layout.place_run(size) is None for size in sorted(map(aligned, need.general), reverse=True)):
            return False
        for name, count in need.pages.items():
            missing = count - layout.spare[name]
            layout.spare[name] = max(-missing, 0)
            if missing > 0 and layout.place_spans(name, missing, self.page_classes[name].pages_per_span) is None:
                return False
        return True

    def could_ever_have(self, need: Need) -> bool:
        """Whether all of it could be had if all were free."""
        span = 0
        for name, count in need.pages.items():
            while count > 0:
                if span == self.num_spans:
                    return False
                count -= self.page_classes[name].pages_per_span[span]
                span += 1
        return sum(map(aligned, need.general)) <= self.nbytes - span * self.span_bytes

    def segments(self) -> list[Segment]:
        """What the bytes consist of, in address order: free ranges, leases, spans of page classes."""
        found = [Segment(start, end) for start, end in self._extents]
        found += map(self._segment_of, self.leases.values())
        for page_class in self.page_classes.values():
            found += self._segments_of(page_class)
        return sorted(found, key=lambda segment: segment.start)

    # Inside: making room for pages

    def _make_for_some_pages(self, page_class: PageClass) -> bool:
        """Taps the best source of pages: a free span, one that others hold in vain, theirs in use, one's own pages."""
        if self.clock.num_completed >= self._reserved_until:
            self._reserved.clear()
        return (
            self._add_free_span(page_class)
            or (self._give_up_empty_spans(but=page_class) and self._add_free_span(page_class))
            or self._clear_span_for(page_class)
            or self._evict_page(page_class)
        )

    def _add_free_span(self, page_class: PageClass) -> bool:
        index = next((i for spans in self._extents.whole_spans() for i in spans if i not in self._reserved), None)
        if index is None:
            return False
        self._extents.take(index * self.span_bytes, self.span_bytes)
        page_class.add_span(index)
        return True

    def _clear_span_for(self, page_class: PageClass) -> bool:
        """Clears a span that others hold, if that costs less per page than evicting one of the class's own.

        Looking costs a pass over all segments. While it is in vain, it is done the less often the more there are.
        """
        own = self._cheapest_tenant(page_class)
        if own is not None and self._looks_to_skip > 0:
            self._looks_to_skip -= 1
            return False
        limit = math.inf if own is None else self.prices.cost(own[0], page_class.page_bytes)
        if limit == 0.0 or self._is_waiting:
            return False
        layout = self._layout()
        found = layout.place_spans(
            page_class.name, 1, page_class.pages_per_span, max_cost_per_page=limit, but=self._reserved
        )
        if found is None:
            self._looks_to_skip = len(layout.segments) // 16
            return False
        index, segments = found[0]
        self._clear(segments)
        if not self._extents.is_free(index * self.span_bytes, self.span_bytes):
            return False
        self._extents.take(index * self.span_bytes, self.span_bytes)
        page_class.add_span(index)
        return True

    def _cheapest_tenant(self, page_class: PageClass) -> tuple[float, PageTenant] | None:
        priced = ((tenant.next_price(page_class), tenant) for tenant in self.tenants)
        return min(((p, t) for p, t in priced if p is not None), key=lambda found: found[0], default=None)

    def _evict_page(self, page_class: PageClass) -> bool:
        found = self._cheapest_tenant(page_class)
        return found is not None and found[1].evict(page_class)

    def _give_up_empty_spans(self, but: PageClass | None = None) -> bool:
        before = self._extents.num_free_bytes
        for page_class in self.page_classes.values():
            if page_class is not but:
                page_class.give_up_empty_spans()
        return self._extents.num_free_bytes > before

    # Inside: making room for leases

    def _take_holes(self, sizes: Sequence[int]) -> list[int] | None:
        """Takes free runs for all sizes, the largest first; None, and nothing is taken, when one has none."""
        starts: dict[int, int] = {}
        for i in _largest_first(sizes):
            start = self._extents.place(aligned(sizes[i]))
            if start is None:
                self._give_back(starts.values(), [sizes[j] for j in starts])
                return None
            self._extents.take(start, aligned(sizes[i]))
            starts[i] = start
        return [starts[i] for i in range(len(sizes))]

    def _give_back(self, starts: Iterable[int], sizes: Iterable[int]) -> None:
        for start, nbytes in zip(starts, sizes, strict=True):
            self._extents.give(start, aligned(nbytes))

    def _clear_runs(self, sizes: Sequence[int]) -> list[int] | Shortfall:
        if self._is_waiting:
            return Shortfall(sum(sizes))
        layout = self._layout()
        starts: dict[int, int] = {}
        to_clear: list[Segment] = []
        for i in _largest_first(sizes):
            placed = layout.place_run(aligned(sizes[i]))
            if placed is None:
                return Shortfall(sizes[i])
            starts[i] = placed[0]
            to_clear += placed[1]
        is_cleared = self._clear(to_clear)
        runs = [(starts[i], aligned(nbytes)) for i, nbytes in enumerate(sizes)]
        if not all(self._extents.is_free(*run) for run in runs):
            if is_cleared:
                self._reserve(runs)
            return Shortfall(sum(sizes))
        for run in runs:
            self._extents.take(*run)
        return [start for start, _ in runs]

    def _reserve(self, runs: Iterable[tuple[int, int]]) -> None:
        """Keeps page classes off the spans of room that still retires, while there is another way for them."""
        self._reserved = {
            index
            for start, nbytes in runs
            for index in range(start // self.span_bytes, -(-(start + nbytes) // self.span_bytes))
        }
        self._reserved_until = self.clock.num_completed + RESERVED_FOR_STEPS

    def _clear(self, segments: Iterable[Segment]) -> bool:
        """Evicts leases and empties spans, whose moved pages may still have to retire; False when it got stuck."""
        spans: dict[PageClass, list[int]] = {}
        for segment in segments:
            if isinstance(segment.holder, SharedLease):
                self.prices.evicted(segment.holder.price)
                segment.holder.release()
            elif isinstance(segment.holder, PageClass):
                spans.setdefault(segment.holder, []).append(segment.start // self.span_bytes)
        cleared = [page_class.vacate(of, partial(self._evict_page, page_class)) for page_class, of in spans.items()]
        return all(cleared)

    @property
    def _is_waiting(self) -> bool:
        """Whether room is on its way: pages were moved aside and retire. Until then no more is cleared."""
        return any(page_class.is_leaving_spans for page_class in self.page_classes.values())

    # Inside: the layout

    def _layout(self) -> Layout:
        spare = {name: self._spare(page_class) for name, page_class in self.page_classes.items()}
        return Layout(self.segments(), spare, self.span_bytes)

    def _spare(self, page_class: PageClass) -> int:
        """Pages of the class's own spans that are free or could be evicted."""
        return page_class.num_ready + sum(tenant.num_evictable(page_class) for tenant in self.tenants)

    def _most_clearable(self) -> int:
        """No more bytes than these could be made free: a quick answer where there is no hope."""
        return (
            self._extents.num_free_bytes
            + sum(aligned(lease.nbytes) for lease in self.leases.values() if _is_evictable(lease))
            + sum(self._spare(c) // min(c.pages_per_span) * self.span_bytes for c in self.page_classes.values())
        )

    def _segment_of(self, lease: Lease) -> Segment:
        cost = self.prices.cost(lease.price, lease.nbytes) if _is_evictable(lease) else math.inf
        return Segment(lease.start, lease.start + aligned(lease.nbytes), cost, lease)

    def _segments_of(self, page_class: PageClass) -> Iterable[Segment]:
        """To clear a span its held pages move to free ones elsewhere; as many are evicted as are missing for that."""
        own = self._cheapest_tenant(page_class)
        evict_cost = 0.0 if own is None else self.prices.cost(own[0], page_class.page_bytes)
        move_cost = page_class.page_bytes * MOVE_SECONDS_PER_BYTE
        for index, num_free in page_class.spans():
            num_pages = page_class.pages_per_span[index]
            cost = math.inf
            if num_free is not None:
                num_held = num_pages - num_free
                num_evicted = max(num_held - (page_class.num_ready - num_free), 0)
                cost = num_evicted * evict_cost + num_held * move_cost
            start = index * self.span_bytes
            yield Segment(start, start + self.span_bytes, cost, page_class, page_class.name, num_pages)


def _is_evictable(lease: Lease) -> TypeGuard[SharedLease]:
    return isinstance(lease, SharedLease) and lease.num_locks == 0


def _largest_first(sizes: Sequence[int]) -> list[int]:
    return sorted(range(len(sizes)), key=lambda i: -sizes[i])
