"""The free pages of the spans that one page class has, handed out so that whole spans become free again.

Knows page ids and span indices; nothing of owners or bytes.
"""

from collections.abc import Iterable


class PageSpan:
    """A span of a class.

    Fields:
        ids: of the pages that lie wholly in it.
        free: those that can be taken.
        bucket: the number of free pages it is filed under; 0 while it is not filed.
        is_leaving: its pages are not offered any more; it goes when all are free.
    """

    __slots__ = ("bucket", "free", "ids", "index", "is_leaving")

    def __init__(self, index: int, ids: range) -> None:
        self.index = index
        self.ids = ids
        self.free = list(reversed(ids))
        self.bucket = 0
        self.is_leaving = False

    @property
    def is_empty(self) -> bool:
        return len(self.free) == len(self.ids)


_NONE = range(0)


class FreePages:
    """Free pages by span. One span is *filled* at a time; the next is the one with the fewest free pages.

    Fields:
        filling: the span that pages are taken from; whoever takes from its `free` lowers `num_free`.
        num_free: pages that can be taken.
        num_leaving: spans that go when their last page is free.
        spans: all spans of the class, by index.
    """

    def __init__(self, page_bytes: int, span_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.span_bytes = span_bytes
        self.filling = PageSpan(-1, _NONE)
        self.num_free = self.num_leaving = 0
        self.spans: dict[int, PageSpan] = {}
        self._buckets: list[dict[int, PageSpan]] = [{} for _ in range(span_bytes // page_bytes + 1)]

    def ids_in(self, index: int) -> range:
        """Ids of the pages that lie wholly in a span."""
        start = index * self.span_bytes
        return range(-(-start // self.page_bytes), (start + self.span_bytes) // self.page_bytes)

    def span_of(self, page: int) -> int:
        """Index of the span in which the page lies."""
        return page * self.page_bytes // self.span_bytes

    def empty_spans(self) -> list[int]:
        """Indices of the spans whose pages are all free. A span holds S // P pages of its own, or one less."""
        candidates = [self.filling, *self._buckets[-1].values(), *self._buckets[-2].values()]
        return [span.index for span in candidates if span.ids and span.is_empty]

    def add(self, index: int) -> None:
        """The class has one more span, all free."""
        self.spans[index] = span = PageSpan(index, self.ids_in(index))
        self.num_free += len(span.free)
        self._file(span)

    def fill_next(self) -> bool:
        """Makes the fullest span with a free page the one to fill; False when no page is free."""
        bucket = next((bucket for bucket in self._buckets if bucket), None)
        if bucket is None:
            return False
        self._file(self.filling)
        _, span = bucket.popitem()
        span.bucket = 0
        self.filling = span
        return True

    def put(self, pages: Iterable[int]) -> list[int]:
        """Pages are free again; returns the leaving spans that are gone by it."""
        gone = []
        for page in pages:
            span = self.spans[self.span_of(page)]
            span.free.append(page)
            if span.is_leaving:
                if span.is_empty:
                    gone.append(span.index)
                    self.num_leaving -= 1
                    del self.spans[span.index]
                continue
            self.num_free += 1
            if span is not self.filling:
                self._unfile(span)
                self._file(span)
        return gone

    def withdraw(self, index: int) -> bool:
        """Offers no more pages of a span, which goes once it is empty; True when it is gone at once."""
        span = self.spans[index]
        self._unfile(span)
        self.num_free -= len(span.free)
        if span.is_empty:
            del self.spans[index]
            return True
        span.is_leaving = True
        self.num_leaving += 1
        return False

    def readmit(self, index: int) -> None:
        """Offers the pages of a leaving span again."""
        span = self.spans[index]
        span.is_leaving = False
        self.num_leaving -= 1
        self.num_free += len(span.free)
        self._file(span)

    def _file(self, span: PageSpan) -> None:
        if span.free:
            span.bucket = len(span.free)
            self._buckets[span.bucket][span.index] = span

    def _unfile(self, span: PageSpan) -> None:
        if span is self.filling:
            self.filling = PageSpan(-1, _NONE)
        elif span.bucket:
            del self._buckets[span.bucket][span.index]
            span.bucket = 0
