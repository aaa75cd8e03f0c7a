"""What keeping things is worth, and who goes first.

Everything evictable has a *price*: seconds that keeping it saves, per byte. The least price goes first, whatever its
kind. So that what was dear but is never asked for goes too, prices start from a floor that rises to the price of
whatever was evicted last (GreedyDual-Size: Cao and Irani, 1997): among things of equal worth the least recently used
goes first. Knows nothing of what the bytes hold.
"""

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from ..step import Work
from .host import HostTenant
from .pages import PageClass


class PageTenant(HostTenant, Protocol):
    """Somebody who holds pages, and host copies of pages, that may be evicted: a prefix cache."""

    def num_evictable(self, page_class: PageClass) -> int:
        """Pages of the class that could be evicted, one after another."""
        ...

    def next_price(self, page_class: PageClass) -> float | None:
        """The price of what `evict` would evict; None when there is nothing."""
        ...

    def evict(self, page_class: PageClass) -> bool:
        """Evicts the cheapest page of the class (and what hangs on it); False when there is nothing."""
        ...

    def check(self) -> None:
        """Asserts that its books agree with the arena's."""
        ...


MAX_SECONDS = 1e6


class Prices:
    """What prices are made of. `seconds(cost_key, work)` is the cost model.

    The price of a thing is the floor as it was when the thing was used last, plus its worth.
    """

    def __init__(self, seconds: Callable[[Hashable, Work], float]) -> None:
        self.seconds = seconds
        self.floor = 0.0

    def worth(self, cost_key: Hashable, saves: Work, nbytes: int) -> float:
        """Seconds per byte that keeping something saves; finite, whatever the cost model says."""
        return min(max(0.0, self.seconds(cost_key, saves)), MAX_SECONDS) / max(nbytes, 1)

    def cost(self, price: float, nbytes: int) -> float:
        """Seconds that evicting `nbytes` of that price throws away, as seen from the floor."""
        return max(price - self.floor, 0.0) * nbytes

    def evicted(self, price: float) -> None:
        """Something of that price went."""
        self.floor = max(self.floor, price)


T = TypeVar("T", bound=Hashable)


class PriceQueue(Generic[T]):
    """Things in order of (price, last use).

    Offer a thing whenever it becomes evictable. `rank(thing)` says its (price, last use) now, or None while it cannot
    go: what was offered is looked at again before it is handed out, so prices may rise and things may be locked at any
    time without telling.
    """

    def __init__(self, rank: Callable[[T], tuple[float, int] | None]) -> None:
        self._rank = rank
        self._heap: list[tuple[tuple[float, int], int, T]] = []
        self._offered: set[T] = set()
        self._num_offers = 0

    def offer(self, thing: T) -> None:
        """Files a thing, if it can go and is not filed already."""
        rank = self._rank(thing)
        if rank is not None and thing not in self._offered:
            self._offered.add(thing)
            self._num_offers += 1
            heapq.heappush(self._heap, (rank, self._num_offers, thing))

    def withdraw(self, thing: T) -> None:
        """The thing is gone for good, and nothing here keeps it for long."""
        if thing in self._offered:
            self._offered.remove(thing)
            if 2 * len(self._offered) < len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2] in self._offered]
                heapq.heapify(self._heap)

    def cheapest(self) -> tuple[float, T] | None:
        """The price and the thing that goes first; None when nothing can go. It stays filed."""
        while self._heap:
            rank, _, thing = self._heap[0]
            if self._rank(thing) == rank:
                return rank[0], thing
            heapq.heappop(self._heap)
            self._offered.discard(thing)
            self.offer(thing)
        return None
