"""Free byte ranges of a buffer, merged, in address order. Knows offsets only, not what takes the ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

ALIGNMENT = 256
"""Every lease starts at a multiple of this, in bytes."""


def aligned(nbytes: int) -> int:
    """The bytes that a lease of `nbytes` occupies."""
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


def num_whole_spans(start: int, end: int, span_bytes: int) -> int:
    """Spans that lie wholly in [start, end)."""
    return max(end // span_bytes + (-start // span_bytes), 0)


def place_in(start: int, end: int, nbytes: int, span_bytes: int) -> int:
    """At which end of a range a run leaves more whole spans: a high address unless the low one leaves more."""
    left_below = num_whole_spans(start, end - nbytes, span_bytes)
    left_above = num_whole_spans(start + nbytes, end, span_bytes)
    return start if left_above > left_below else end - nbytes


class Extents:
    """Which ranges of [0, nbytes) are free. Neighbours are always merged.

    `span_bytes` guides `place`: ranges are chosen so that as few wholly free spans as possible are broken.
    """

    def __init__(self, nbytes: int, span_bytes: int) -> None:
        self.nbytes = nbytes
        self.span_bytes = span_bytes
        self._starts = [0] if nbytes else []
        self._ends = [nbytes] if nbytes else []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(start, end) of each free range."""
        return iter(zip(self._starts, self._ends, strict=True))

    @property
    def num_free_bytes(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def place(self, nbytes: int) -> int | None:
        """Where a run of `nbytes` best goes: few free spans broken, then a tight hole, then a high address."""
        best: tuple[int, int, int] | None = None
        for start, end in self:
            if end - start >= nbytes:
                at = place_in(start, end, nbytes, self.span_bytes)
                num_broken = (
                    num_whole_spans(start, end, self.span_bytes)
                    - num_whole_spans(start, at, self.span_bytes)
                    - num_whole_spans(at + nbytes, end, self.span_bytes)
                )
                found = (num_broken, end - start, -at)
                best = found if best is None else min(best, found)
        return None if best is None else -best[2]

    def whole_spans(self) -> Iterator[range]:
        """Runs of indices of the spans that are wholly free, the lowest first."""
        for start, end in self:
            yield range(-(-start // self.span_bytes), end // self.span_bytes)

    def is_free(self, start: int, nbytes: int) -> bool:
        """Whether the whole range is free."""
        i = bisect_right(self._starts, start) - 1
        return i >= 0 and start + nbytes <= self._ends[i]

    def take(self, start: int, nbytes: int) -> None:
        """Marks a free range as taken."""
        if not self.is_free(start, nbytes):
            raise ValueError(f"Bytes {start} to {start + nbytes} are not free.")
        i = bisect_right(self._starts, start) - 1
        end, self._ends[i] = self._ends[i], start
        if start + nbytes < end:
            self._starts.insert(i + 1, start + nbytes)
            self._ends.insert(i + 1, end)
        if self._starts[i] == start:
            del self._starts[i], self._ends[i]

    def give(self, start: int, nbytes: int) -> None:
        """Marks a taken range as free."""
        end = start + nbytes
        i = bisect_left(self._starts, start)
        if (i > 0 and self._ends[i - 1] > start) or (i < len(self._starts) and self._starts[i] < end):
            raise ValueError(f"Bytes {start} to {end} are free already.")
        if i < len(self._starts) and self._starts[i] == end:
            end = self._ends[i]
            del self._starts[i], self._ends[i]
        if i > 0 and self._ends[i - 1] == start:
            self._ends[i - 1] = end
        else:
            self._starts.insert(i, start)
            self._ends.insert(i, end)
