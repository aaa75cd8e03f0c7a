"""A dictionary that forgets what was not used for longest."""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `size` entries; reading one counts as use."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: K, value: V) -> V | None:
        """Returns what was forgotten for it."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        return self._entries.popitem(last=False)[1] if len(self._entries) > self._size else None
