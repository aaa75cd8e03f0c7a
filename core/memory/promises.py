"""Prefixes that somebody is about to compute: matchable before their pages exist, so that equal prompts wait.

Knows token ids and owners; nothing of pages or the tree.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any


class Promise:
    """`owner` is going to compute the whole pages of `token_ids` under a namespace.

    Fields:
        num_launched: tokens, from the start of the prompt, whose pages are launched (or were there before).
        is_open: whether more is to come; not when all is launched, nor when it was broken.
        node: the deepest node of the tree that holds its pages, locked until the promise is broken.
    """

    __slots__ = ("is_open", "namespace", "node", "num_launched", "owner", "token_ids")

    def __init__(self, namespace: Hashable, token_ids: Sequence[int], owner: str, num_launched: int) -> None:
        self.namespace = namespace
        self.token_ids = tuple(token_ids)
        self.owner = owner
        self.num_launched = num_launched
        self.is_open = num_launched < len(self.token_ids)
        self.node: Any = None


class PromiseBook:
    """Open promises, found by the pages they cover. Of two that promise one page, the first counts."""

    def __init__(self, page_len: int) -> None:
        self._page_len = page_len
        self._by_page: dict[int, Promise] = {}

    def add(self, promise: Promise) -> None:
        """Makes its pages that are not launched findable."""
        for num_tokens, key in self._keys(promise.namespace, promise.token_ids):
            if num_tokens > promise.num_launched:
                self._by_page.setdefault(key, promise)

    def launched(self, promise: Promise, num_tokens: int) -> None:
        """Pages up to `num_tokens` need no promise any more."""
        promise.num_launched = max(promise.num_launched, num_tokens)
        promise.is_open = promise.is_open and promise.num_launched < len(promise.token_ids)
        for end, key in self._keys(promise.namespace, promise.token_ids):
            if (end <= num_tokens or not promise.is_open) and self._by_page.get(key) is promise:
                del self._by_page[key]

    def broken(self, promise: Promise) -> None:
        """Nothing more will come of it."""
        if promise.is_open:
            promise.is_open = False
            self.launched(promise, promise.num_launched)

    def find(self, namespace: Hashable, token_ids: Sequence[int], num_matched: int) -> tuple[Promise | None, int]:
        """The promise of the first whole page after `num_matched` tokens, and up to where it agrees with the ids."""
        found: Promise | None = None
        agreed = num_matched
        if self._by_page:
            for end, key in self._keys(namespace, token_ids):
                if end > num_matched:
                    promise = self._by_page.get(key)
                    if promise is None or (found is not None and promise is not found):
                        break
                    found, agreed = promise, end
        if found is None or found.token_ids[:agreed] != tuple(token_ids[:agreed]):
            return None, num_matched
        return found, agreed

    def _keys(self, namespace: Hashable, token_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(end of the page in tokens, hash of namespace and all tokens up to there) per whole page."""
        key = hash(namespace)
        for end in range(self._page_len, len(token_ids) + 1, self._page_len):
            key = hash((key, *token_ids[end - self._page_len : end]))
            yield end, key
