"""What an arena consists of at one moment, and which of its bytes are cheapest to clear.

A layout is a snapshot on which placements can be tried out: whoever only asks throws it away, whoever leases clears
the segments it was told. Costs are in seconds; infinity blocks. Knows nothing of what the bytes hold.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .extents import place_in


class Segment(NamedTuple):
    """Bytes [start, end).

    Fields:
        cost: seconds that clearing it would throw away; infinity when it cannot be cleared.
        holder: whose it is: a lease, a page class, or None when it is free.
        page_class: name of the class whose span it is.
        num_pages: how many free pages that class would lose with it, its held ones being moved or evicted.
    """

    start: int
    end: int
    cost: float = 0.0
    holder: Any = None
    page_class: str | None = None
    num_pages: int = 0


class Layout:
    """Segments in address order without gaps, and how many pages each class could spare or take by evicting."""

    def __init__(self, segments: Iterable[Segment], spare: Mapping[str, int], span_bytes: int) -> None:
        self.segments = sorted(segments, key=_start)
        self.spare = dict(spare)
        self.span_bytes = span_bytes

    def place_run(self, nbytes: int) -> tuple[int, list[Segment]] | None:
        """Takes `nbytes` at one end of the cheapest run of segments; (offset, which ones must be cleared for it).

        Of equal costs the shortest run is chosen. None when everything is blocked.
        """
        best: tuple[float, int, int, int] | None = None
        run = _Run(self.segments, self.spare)
        while run.grow():
            while run.nbytes - run.nbytes_of_first >= nbytes:
                run.shrink()
            if run.nbytes >= nbytes and (best is None or (run.cost, run.nbytes) < best[:2]):
                best = (run.cost, run.nbytes, run.first, run.after)
        if best is None:
            return None
        chosen = self.segments[best[2] : best[3]]
        start = place_in(chosen[0].start, chosen[-1].end, nbytes, self.span_bytes)
        self._take(chosen, [(start, start + nbytes)])
        return start, chosen

    def place_spans(
        self,
        page_class: str,
        num_pages: int,
        pages_per_span: Sequence[int],
        *,
        max_cost_per_page: float = math.inf,
        but: Container[int] = (),
    ) -> list[tuple[int, list[Segment]]] | None:
        """Takes the cheapest whole spans that hold `num_pages`; (index, what to clear) of each.

        None when there are not as many.

        Args:
            pages_per_span: pages of the class in each span of the arena.
            max_cost_per_page: spans whose pages cost this much each, or more, are left alone.
            but: indices of other spans to leave alone.
        """
        chosen: list[tuple[int, list[Segment]]] = []
        for cost, index, inside in sorted(self._spans_for(page_class), key=lambda found: found[:2]):
            if num_pages <= 0 or cost >= max_cost_per_page * pages_per_span[index]:
                break
            if index not in but and self._can_spare(inside):
                self._spend(inside)
                chosen.append((index, inside))
                num_pages -= pages_per_span[index]
        if num_pages > 0:
            return None
        cleared = [segment for _, inside in chosen for segment in inside]
        self._take(cleared, sorted((i * self.span_bytes, (i + 1) * self.span_bytes) for i, _ in chosen), spend=False)
        return chosen

    def _spans_for(self, page_class: str) -> Iterator[tuple[float, int, list[Segment]]]:
        """(cost, index, segments) of each whole span that could be cleared for the class."""
        at = 0
        for index in range(self.segments[-1].end // self.span_bytes):
            start, end = index * self.span_bytes, (index + 1) * self.span_bytes
            while self.segments[at].end <= start:
                at += 1
            after = at
            while after < len(self.segments) and self.segments[after].start < end:
                after += 1
            inside = self.segments[at:after]
            cost = sum(segment.cost for segment in inside)
            if cost < math.inf and all(segment.page_class != page_class for segment in inside):
                yield cost, index, inside

    def _can_spare(self, inside: Iterable[Segment]) -> bool:
        """Whether the classes can do without these spans. A span belongs to one class, so each is asked alone."""
        return all(self.spare[s.page_class] >= s.num_pages for s in inside if s.page_class is not None)

    def _spend(self, inside: Iterable[Segment]) -> None:
        for segment in inside:
            if segment.page_class is not None:
                self.spare[segment.page_class] -= segment.num_pages

    def _take(self, cleared: Sequence[Segment], taken: Sequence[tuple[int, int]], *, spend: bool = True) -> None:
        """The cleared segments become free, but for the taken ranges, which are blocked from now on."""
        if spend:
            self._spend(cleared)
        gone = set(cleared)
        kept = [segment for segment in self.segments if segment not in gone]
        kept += [Segment(start, end, math.inf) for start, end in taken]
        for segment in gone:
            start = segment.start
            for taken_start, taken_end in taken:
                if taken_start < segment.end and taken_end > start:
                    if taken_start > start:
                        kept.append(Segment(start, taken_start))
                    start = taken_end
            if start < segment.end:
                kept.append(Segment(start, segment.end))
        self.segments = sorted(kept, key=_start)


def _start(segment: Segment) -> int:
    return segment.start


class _Run:
    """A run of neighbouring segments that could be cleared together, slid over a layout."""

    def __init__(self, segments: Sequence[Segment], spare: Mapping[str, int]) -> None:
        self._segments = segments
        self._spare = spare
        self._spent: Counter[str] = Counter()
        self._num_costly = 0
        self.first = self.after = self.nbytes = 0
        self.cost = 0.0

    @property
    def nbytes_of_first(self) -> int:
        if self.first == self.after:
            return 0
        first = self._segments[self.first]
        return first.end - first.start

    def grow(self) -> bool:
        """Adds the next segment, dropping first ones until the run can be cleared; False at the end."""
        if self.after == len(self._segments):
            return False
        segment = self._segments[self.after]
        self.after += 1
        self._count(segment, 1)
        while self.nbytes and not self._can_clear(segment):
            self.shrink()
        return True

    def shrink(self) -> None:
        """Drops the first segment."""
        self._count(self._segments[self.first], -1)
        self.first += 1

    def _can_clear(self, last: Segment) -> bool:
        if last.page_class is not None and self._spent[last.page_class] > self._spare[last.page_class]:
            return False
        return last.cost < math.inf

    def _count(self, segment: Segment, sign: int) -> None:
        self.nbytes += sign * (segment.end - segment.start)
        if segment.page_class is not None:
            self._spent[segment.page_class] += sign * segment.num_pages
        if 0.0 < segment.cost < math.inf:
            self._num_costly += sign
            self.cost = self.cost + sign * segment.cost if self._num_costly else 0.0
