"""What keeping something is worth, and which run of bytes is cheapest to clear.

Everything evictable has a *price*: seconds that keeping it saves, per byte. The least price goes first, whatever its
kind. So that what was dear but is never asked for goes too, prices start from a floor that rises to the price of
whatever was evicted last (GreedyDual-Size: Cao and Irani, 1997): among things of equal worth the least recently used
goes first. Knows nothing of what the bytes hold.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, Protocol

from ..step import Work
from .pages import PageClass


class PageTenant(Protocol):
    """Somebody who holds pages that may be evicted: a prefix cache."""

    def num_evictable(self, page_class: PageClass) -> int:
        """Pages of the class that could be evicted, one after another."""
        ...

    def next_price(self, page_class: PageClass) -> float | None:
        """The price of what `evict` would evict; None when there is nothing."""
        ...

    def evict(self, page_class: PageClass) -> bool:
        """Evicts the cheapest page of the class (and what hangs on it); False when there is nothing."""
        ...


class Segment(NamedTuple):
    """A piece of the arena: [start, end) costs `cost` seconds to clear; `holder` None means it is free."""

    start: int
    end: int
    cost: float
    holder: object | None


class Evictor:
    """Sets prices. `seconds(cost_key, work)` is the cost model."""

    def __init__(self, seconds: Callable[[Hashable, Work], float]) -> None:
        self.seconds = seconds
        self.floor = 0.0

    def price(self, cost_key: Hashable, saves: Work, nbytes: int) -> float:
        """Seconds per byte, above the floor of the moment: to be set at each use."""
        return self.floor + max(self.seconds(cost_key, saves), 0.0) / nbytes

    def cost(self, price: float, nbytes: int) -> float:
        """Seconds that evicting `nbytes` of that price throws away, counted from the floor of the moment."""
        return max(price - self.floor, 0.0) * nbytes

    def evicted(self, price: float) -> None:
        """Something of that price went."""
        self.floor = max(self.floor, price)


def cheapest_window(segments: Iterable[Segment], nbytes: int) -> list[Segment] | None:
    """The run of neighbouring segments of at least `nbytes` that costs least to clear; None if all are blocked.

    Segments are in address order; a cost of infinity blocks. Of equal costs the shorter run is chosen.
    """
    best: tuple[float, int, list[Segment]] | None = None
    window: list[Segment] = []
    size, cost = 0, 0.0
    for segment in segments:
        if segment.cost == math.inf or (window and window[-1].end != segment.start):
            window, size, cost = [], 0, 0.0
            if segment.cost == math.inf:
                continue
        window.append(segment)
        size += segment.end - segment.start
        cost += segment.cost
        while size - (window[0].end - window[0].start) >= nbytes:
            first = window.pop(0)
            size -= first.end - first.start
            cost -= first.cost
        if size >= nbytes and (best is None or (cost, size) < best[:2]):
            best = (cost, size, window.copy())
    return None if best is None else best[2]
