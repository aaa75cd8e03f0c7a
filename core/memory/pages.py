"""Pages of one class: equal pieces of the arena, counted by reference, each with the names of its owners.

A page's id is its index in one strided view over the whole arena: page p lies at byte p * page_bytes. Ids that would
straddle the border of a span are never given out. Knows nothing of trees and requests.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol, cast

import torch

from ..device import InFlight
from ..staging import ints_to_device
from ..step import Shortfall
from .spans import FreePages

MOVED_AT_ONCE_BYTES = 16 * 2**20
"""Moving pages needs a buffer outside the arena, of this size at most (or of one page)."""


class Land(Protocol):
    """Where a class gets spans from."""

    def became_free(self) -> None: ...
    def return_span(self, index: int) -> None: ...
    def free_spans(self) -> Iterable[range]: ...
    def make_for_pages(self, page_class: "PageClass", count: int) -> bool: ...


class PageClass:
    """All pages of `page_bytes` bytes under one name (one layer group of one model).

    Fields:
        pages_per_span: how many lie wholly in each span of the arena.
    """

    def __init__(
        self, name: str, page_bytes: int, *, buffer: torch.Tensor, span_bytes: int, land: Land, clock: InFlight
    ) -> None:
        self.name = name
        self.page_bytes = page_bytes
        self._buffer = buffer
        self._land = land
        self._clock = clock
        self._owners: dict[int, list[str]] = {}
        self._retiring: set[int] = set()
        self._on_moved: list[Callable[[Mapping[int, int]], None]] = []
        self._cut(span_bytes)

    # Tensors

    def view(self, layers: int, page_len: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
        """[page, layer, 2, page_len, kv_head, head_dim] over the whole arena; page ids index the first dimension."""
        shape = (layers, 2, page_len, kv_heads, head_dim)
        size = math.prod(shape)
        if size * dtype.itemsize > self.page_bytes or self.page_bytes % dtype.itemsize:
            raise ValueError(f"{shape} of {dtype} does not fit pages of {self.page_bytes} bytes ('{self.name}').")
        rows = self._rows().view(dtype)
        return rows[:, :size].view(-1, *shape)

    def bytes_of(self, page: int) -> torch.Tensor:
        """The page's bytes, uint8 [page_bytes]."""
        return self._buffer[page * self.page_bytes : (page + 1) * self.page_bytes]

    # Taking and giving back

    def take(self, count: int, owner: str) -> list[int] | Shortfall:
        """`count` pages, each with one reference by `owner`; evicts as needed; all or nothing.

        Like any other lease it may move pages that were taken before: keep those where `on_moved` finds them.
        """
        free = self._free.filling.free
        if count <= len(free):
            first = len(free) - count
            pages = free[first:]
            del free[first:]
            self._free.num_free -= count
        elif self.make_room(count):
            pages = self._pop(count)
        else:
            return Shortfall((count - self._free.num_free) * self.page_bytes, self.name)
        owners = self._owners
        for page in pages:
            owners[page] = [owner]
        return pages

    def make_room(self, count: int) -> bool:
        """Evicts until `count` pages are free; False when they cannot be."""
        return self._free.num_free >= count or self._land.make_for_pages(self, count)

    def retain(self, pages: Iterable[int], owner: str) -> None:
        """One more reference to each page."""
        for page in pages:
            self._owners[page].append(owner)

    def free(self, pages: Iterable[int], owner: str, *, are_quiet: bool = False) -> None:
        """One reference of `owner` less to each page. Pages without any retire, then can be taken again.

        Args:
            are_quiet: no step in flight touches them, so they need not retire.
        """
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
        if are_quiet:
            self._put_back(last)
        else:
            self._retire(last)

    def free_held(self, pages: Iterable[int], owner: str) -> None:
        """Gives back the owner's references to those of the pages of which it holds any."""
        owners = self._owners
        self.free([page for page in pages if owner in owners.get(page, ())], owner)

    def owners_of(self, page: int) -> Sequence[str]:
        """Who holds references to the page; empty when nobody does."""
        return self._owners.get(page, ())

    # Moving

    def on_moved(self, callback: Callable[[Mapping[int, int]], None]) -> None:
        """Registers a holder of pages: called with {old id: new id} when pages have moved, before any later launch.

        The copy is enqueued: after all steps that were launched, and before all that will be.
        """
        self._on_moved.append(callback)

    def vacate(self, spans: Sequence[int], evict: Callable[[], bool]) -> bool:
        """Empties spans for others: moves their held pages to free ones elsewhere, evicting where none are free.

        A span goes back to the arena when the last page that moved away has retired.

        Args:
            evict: frees a page of this class somewhere; False when it cannot.

        Returns:
            False when there is no place to move to; the spans then stay.
        """
        for index in [i for i in spans if self._free.withdraw(i)]:
            self._land.return_span(index)
        held = self._held_in(spans)
        while (num_missing := len(held) - self._free.num_free) > 0:
            if not all(evict() for _ in range(num_missing)):
                for index in spans:
                    if index in self._free.spans:
                        self._free.readmit(index)
                return False
            held = self._held_in(spans)
        if held:
            self._move(held)
        return True

    def _move(self, old: list[int]) -> None:
        new = self._pop(len(old))
        rows = self._rows()
        at_once = max(MOVED_AT_ONCE_BYTES // self.page_bytes, 1)
        with self._clock.outside():
            for i in range(0, len(old), at_once):
                to, of = (ints_to_device(ids[i : i + at_once], rows.device) for ids in (new, old))
                rows.index_copy_(0, to, rows[of])
        for before, after in zip(old, new, strict=True):
            self._owners[after] = self._owners.pop(before)
        moves = dict(zip(old, new, strict=True))
        for callback in self._on_moved:
            callback(moves)
        self._retire(old)

    # Counts and spans

    @property
    def num_ready(self) -> int:
        """Free pages in the class's own spans."""
        return self._free.num_free

    @property
    def num_free(self) -> int:
        """Pages that can be taken without evicting anything: those ready, and those of free spans."""
        before = self._pages_before
        return self.num_ready + sum(
            before[spans.stop] - before[spans.start] for spans in self._land.free_spans() if spans
        )

    @property
    def num_pages_possible(self) -> int:
        """Pages there were if every span belonged to this class."""
        return self._pages_before[-1]

    def ids_in(self, span: int) -> range:
        """Ids of the pages that lie wholly in a span, of this class or not."""
        return self._free.ids_in(span)

    @property
    def num_spans(self) -> int:
        """Spans that belong to the class."""
        return len(self._free.spans)

    def spans(self) -> Iterator[tuple[int, int | None]]:
        """Index and number of free pages of each span of the class; None where pages retire: it must wait."""
        waiting = set(map(self._free.span_of, self._retiring))
        for index, span in self._free.spans.items():
            yield index, None if index in waiting else len(span.free)

    @property
    def is_leaving_spans(self) -> bool:
        """Whether spans are on their way back to the arena: pages that moved away from them still retire."""
        return bool(self._free.num_leaving)

    def add_span(self, index: int) -> None:
        """The arena gives the class a free span."""
        self._free.add(index)

    def give_up_empty_spans(self) -> None:
        """Returns every span without a held or retiring page to the arena."""
        for index in self._free.empty_spans():
            self._free.withdraw(index)
            self._land.return_span(index)

    def recut(self, span_bytes: int) -> None:
        """Spans have another size from now on. The class must have none."""
        if self._free.spans:
            raise ValueError(f"'{self.name}' has spans of {self._free.span_bytes} bytes.")
        self._cut(span_bytes)

    # Books

    @property
    def held(self) -> Mapping[int, Sequence[str]]:
        """The owners of each page that has any, one entry a reference."""
        return self._owners

    @property
    def num_retiring(self) -> int:
        return len(self._retiring)

    def check(self) -> None:
        """Asserts that each page of the class's spans is exactly one of held, retiring and free, and no other is."""
        known = set()
        num_free = 0
        for span in self._free.spans.values():
            free = set(span.free)
            held, retiring = self._owners.keys() & set(span.ids), self._retiring.intersection(span.ids)
            counts = f"'{self.name}': span {span.index}: {len(free)} free, {len(held)} held, {len(retiring)} retiring"
            assert len(free) == len(span.free), f"{counts}; a page is free twice"
            assert len(free) + len(held) + len(retiring) == len(span.ids), f"{counts} of {len(span.ids)} pages"
            assert free | held | retiring == set(span.ids), f"{counts}; some are not of this span"
            known |= held | retiring
            num_free += 0 if span.is_leaving else len(free)
        assert known == self._owners.keys() | self._retiring, f"'{self.name}': pages outside its spans are held"
        assert num_free == self._free.num_free, f"'{self.name}': {num_free} pages free, {self._free.num_free} counted"

    # Inside

    def _cut(self, span_bytes: int) -> None:
        self._free = FreePages(self.page_bytes, span_bytes)
        self.pages_per_span = [len(self.ids_in(i)) for i in range(self._buffer.numel() // span_bytes)]
        self._pages_before = list(accumulate(self.pages_per_span, initial=0))

    def _rows(self) -> torch.Tensor:
        """uint8 [page, page_bytes] over the whole arena."""
        num_pages = self._buffer.numel() // self.page_bytes
        return self._buffer[: num_pages * self.page_bytes].view(num_pages, self.page_bytes)

    def _pop(self, count: int) -> list[int]:
        """Takes free pages, of which there are enough, from the fullest spans."""
        pages: list[int] = []
        while len(pages) < count:
            free = self._free.filling.free
            if not free:
                self._free.fill_next()
                continue
            first = max(len(free) - (count - len(pages)), 0)
            pages += free[first:]
            del free[first:]
        self._free.num_free -= count
        return pages

    def _held_in(self, spans: Sequence[int]) -> list[int]:
        return [page for i in spans for page in self.ids_in(i) if page in self._owners]

    def _retire(self, pages: list[int]) -> None:
        if self._clock.is_idle:
            self._put_back(pages)
        else:
            self._retiring.update(pages)
            self._clock.retire(lambda: self._put_back(pages))

    def _put_back(self, pages: list[int]) -> None:
        if self._retiring:
            self._retiring.difference_update(pages)
        for index in self._free.put(pages):
            self._land.return_span(index)
        self._land.became_free()


def take_together(classes: Sequence[PageClass], count: int, owner: str) -> list[list[int]] | Shortfall:
    """`count` pages of each class, all or nothing, so that no take moves what the one before it took."""
    for _ in classes:  # room for one class may come out of another's
        for page_class in classes:
            if not page_class.make_room(count):
                return Shortfall(count * page_class.page_bytes, page_class.name)
        if all(page_class.num_ready >= count for page_class in classes):
            return [cast(list[int], page_class.take(count, owner)) for page_class in classes]
    return Shortfall(count * classes[0].page_bytes, classes[0].name)
