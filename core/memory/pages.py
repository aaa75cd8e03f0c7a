"""Pages of one class: equal pieces of the arena, counted by reference, each with the names of its owners.

A page's id is its index in one strided view over the whole arena: page p lies at byte p * page_bytes. Ids that would
straddle the border of a span are never given out. Knows nothing of trees and requests.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import torch

from ..device import InFlight
from ..step import Shortfall


class Land(Protocol):
    """Where a class gets spans from: the arena."""

    version: int

    def claim_span(self, page_class: "PageClass") -> int | None: ...
    def return_span(self, index: int) -> None: ...
    def evict_page(self, page_class: "PageClass") -> bool: ...


class _Span:
    """A span that belongs to the class. `bucket` is the number of free pages it is filed under."""

    __slots__ = ("bucket", "capacity", "free", "index")

    def __init__(self, index: int, ids: range) -> None:
        self.index = index
        self.capacity = len(ids)
        self.free = list(reversed(ids))
        self.bucket = 0


class PageClass:
    """All pages of `page_bytes` bytes under one name (one layer group of one model).

    Pages are taken from the span with the fewest free ones, so that whole spans become free for others.
    """

    def __init__(
        self, name: str, page_bytes: int, *, buffer: torch.Tensor, span_bytes: int, land: Land, clock: InFlight
    ) -> None:
        self.name = name
        self.page_bytes = page_bytes
        self.span_bytes = span_bytes
        self._buffer = buffer
        self._land = land
        self._clock = clock
        self._owners: dict[int, list[str]] = {}
        self._retiring: set[int] = set()
        self._spans: dict[int, _Span] = {}
        self._buckets: list[dict[int, _Span]] = [{} for _ in range(span_bytes // page_bytes + 1)]
        self._filling = _Span(-1, range(0))
        self._moved: list[Callable[[Mapping[int, int]], None]] = []

    def view(self, layers: int, page_len: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
        """[page, layer, 2, page_len, kv_head, head_dim] over the whole arena; page ids index the first dimension."""
        shape = (layers, 2, page_len, kv_heads, head_dim)
        if math.prod(shape) * dtype.itemsize > self.page_bytes or self.page_bytes % dtype.itemsize:
            raise ValueError(f"{shape} of {dtype} does not fit pages of {self.page_bytes} bytes ('{self.name}').")
        num_pages = self._buffer.numel() // self.page_bytes
        typed = self._buffer[: num_pages * self.page_bytes].view(dtype).view(num_pages, -1)
        return typed[:, : math.prod(shape)].unflatten(1, shape)

    def bytes_of(self, page: int) -> torch.Tensor:
        """The page's bytes, uint8 [page_bytes]."""
        return self._buffer[page * self.page_bytes : (page + 1) * self.page_bytes]

    def on_moved(self, callback: Callable[[Mapping[int, int]], None]) -> None:
        """Registers a holder of pages: called with {old id: new id} after pages were moved, before any launch."""
        self._moved.append(callback)

    # Taking and giving back

    def take(self, count: int, owner: str) -> list[int] | Shortfall:
        """`count` pages, each with one reference by `owner`; evicts as needed; all or nothing."""
        free = self._filling.free
        if count <= len(free):
            pages = free[len(free) - count :]
            del free[len(free) - count :]
        else:
            pages = []
            while len(pages) < count:
                if not self._filling.free and not self._fill_next():
                    missing = (count - len(pages)) * self.page_bytes
                    self._put_back(pages)
                    return Shortfall(missing, self.name)
                pages.append(self._filling.free.pop())
        owners = self._owners
        for page in pages:
            owners[page] = [owner]
        return pages

    def retain(self, pages: Iterable[int], owner: str) -> None:
        """One more reference to each page."""
        for page in pages:
            self._owners[page].append(owner)

    def free(self, pages: Iterable[int], owner: str) -> None:
        """One reference of `owner` less to each page. Pages without any retire, then can be taken again."""
        owners = self._owners
        last = []
        for page in pages:
            held_by = owners[page]
            held_by.remove(owner)
            if not held_by:
                del owners[page]
                last.append(page)
        if not last:
            return
        if self._clock.is_idle:
            self._put_back(last)
        else:
            self._retiring.update(last)
            self._clock.retire(lambda: self._retired(last))

    def owners_of(self, page: int) -> Sequence[str]:
        """Who holds references to the page; empty when it is free."""
        return self._owners.get(page, ())

    # Counts

    @property
    def num_free(self) -> int:
        """Pages that can be taken without evicting anything, in the spans of the class."""
        return sum(len(span.free) for span in self._spans.values())

    @property
    def num_pages_possible(self) -> int:
        """Pages there were if every span belonged to this class."""
        return sum(len(self.ids_in(i)) for i in range(self._buffer.numel() // self.span_bytes))

    def ids_in(self, span: int) -> range:
        """Ids of the pages that lie wholly in a span."""
        return range(-(-span * self.span_bytes // self.page_bytes), (span + 1) * self.span_bytes // self.page_bytes)

    # Spans

    @property
    def spans(self) -> Iterator[int]:
        """Indices of the spans that belong to the class."""
        return iter(self._spans)

    @property
    def has_spans(self) -> bool:
        return bool(self._spans)

    def is_empty(self, span: int) -> bool:
        """Whether no page of the span is held or retiring."""
        return len(self._spans[span].free) == self._spans[span].capacity

    def num_spans_for(self, count: int) -> int:
        """How many spans, the first of the arena, hold `count` pages; more than there are when they do not."""
        num_spans = self._buffer.numel() // self.span_bytes
        for i in range(num_spans):
            if count <= 0:
                return i
            count -= len(self.ids_in(i))
        return num_spans if count <= 0 else num_spans + 1

    def recut(self, span_bytes: int) -> None:
        """Spans have another size now; the class has none."""
        self.span_bytes = span_bytes
        self._buckets = [{} for _ in range(span_bytes // self.page_bytes + 1)]

    def give_up_empty_spans(self) -> None:
        """Returns every span without a held or retiring page."""
        for span in [s for s in self._spans.values() if len(s.free) == s.capacity]:
            if span is self._filling:
                self._filling = _Span(-1, range(0))
            else:
                del self._buckets[span.bucket][span.index]
            del self._spans[span.index]
            self._land.return_span(span.index)

    def _fill_next(self) -> bool:
        """Makes the span with the fewest free pages the one that is filled; gets or frees one when none is left."""
        while not self._filling.free:
            bucket = next((bucket for bucket in self._buckets[1:] if bucket), None)
            if bucket is not None:
                _, self._filling = bucket.popitem()
                self._filling.bucket = 0
                break
            index = self._land.claim_span(self)
            if index is not None:
                self._filling = self._spans[index] = _Span(index, self.ids_in(index))
            elif not self._land.evict_page(self):
                return False
        return True

    def _retired(self, pages: list[int]) -> None:
        self._retiring.difference_update(pages)
        self._put_back(pages)

    def _put_back(self, pages: list[int]) -> None:
        for page in pages:
            span = self._spans[page * self.page_bytes // self.span_bytes]
            span.free.append(page)
            if span is not self._filling:
                if span.bucket:
                    del self._buckets[span.bucket][span.index]
                span.bucket = len(span.free)
                self._buckets[span.bucket][span.index] = span
        self._land.version += 1

    # Books

    @property
    def held(self) -> Mapping[int, Sequence[str]]:
        """Owners of each page that has any, one entry a reference."""
        return self._owners

    @property
    def num_retiring(self) -> int:
        return len(self._retiring)

    def check(self) -> None:
        """Asserts that each page of the class's spans is exactly one of held, retiring and free."""
        for span in self._spans.values():
            ids = set(self.ids_in(span.index))
            free = set(span.free)
            held, retiring = ids & self._owners.keys(), ids & self._retiring
            assert len(free) == len(span.free) and free <= ids, (
                f"'{self.name}': a page of span {span.index} is free twice."
            )
            assert len(free) + len(held) + len(retiring) == len(ids) and free | held | retiring == ids, (
                f"'{self.name}': span {span.index} has {len(free)} free, {len(held)} held and {len(retiring)} retiring "
                f"of {len(ids)} pages."
            )
        num_held = sum(1 for page in self._owners if page * self.page_bytes // self.span_bytes in self._spans)
        assert num_held == len(self._owners), f"'{self.name}': a page outside its spans is held."
