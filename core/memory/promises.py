"""Prefixes that somebody is about to compute: matchable before their pages exist, so that equal prompts wait.

Knows token ids and owners; nothing of pages or the tree.
"""

from collections.abc import Hashable, Iterator

from .tree import Node, TokenIds


class Promise:
    """`owner` is going to compute the whole pages of `token_ids` under a namespace.

    Fields:
        num_launched: tokens from the start of the prompt whose pages are launched, or were there before.
        is_open: whether more is to come: not when all is launched, nor when it was broken.
        node: the deepest node of the tree that covers what is launched, locked until the promise is broken.
        keys: of the book.
    """

    __slots__ = ("is_open", "keys", "namespace", "node", "num_launched", "owner", "token_ids")

    def __init__(self, namespace: Hashable, token_ids: TokenIds, owner: str, num_launched: int) -> None:
        self.namespace = namespace
        self.token_ids = token_ids
        self.owner = owner
        self.num_launched = num_launched
        self.is_open = num_launched < len(token_ids)
        self.node: Node | None = None
        self.keys: list[int] = []


class PromiseBook:
    """Open promises, found by the pages they cover. Of two that promise one page, the first counts."""

    def __init__(self, page_len: int) -> None:
        self._page_len = page_len
        self._by_page: dict[int, Promise] = {}

    def add(self, promise: Promise) -> None:
        """Makes its pages that are not launched findable."""
        if promise.is_open:
            promise.keys = list(self._keys(promise.namespace, promise.token_ids))
            for key in promise.keys[promise.num_launched // self._page_len :]:
                self._by_page.setdefault(key, promise)

    def launched(self, promise: Promise, num_tokens: int) -> None:
        """Pages up to `num_tokens` need no promise any more."""
        if promise.is_open and num_tokens > promise.num_launched:
            self._forget(promise, promise.num_launched, num_tokens)
            promise.num_launched = num_tokens
            promise.is_open = num_tokens < len(promise.token_ids)

    def broken(self, promise: Promise) -> None:
        """No more pages will come of it."""
        if promise.is_open:
            self._forget(promise, promise.num_launched, len(promise.token_ids))
            promise.is_open = False

    def find(self, namespace: Hashable, token_ids: TokenIds, num_matched: int) -> tuple[Promise | None, int]:
        """The promise of the first whole page after `num_matched` tokens, and up to where it agrees with the ids."""
        found: Promise | None = None
        agreed = num_matched
        if self._by_page and num_matched + self._page_len <= len(token_ids):
            keys = list(self._keys(namespace, token_ids))
            for page in range(num_matched // self._page_len, len(keys)):
                promise = self._by_page.get(keys[page])
                if promise is None or (found is not None and promise is not found):
                    break
                found, agreed = promise, (page + 1) * self._page_len
        if found is None or found.namespace != namespace or found.token_ids[:agreed] != token_ids[:agreed]:
            return None, num_matched
        return found, agreed

    def _forget(self, promise: Promise, start: int, end: int) -> None:
        for key in promise.keys[start // self._page_len : end // self._page_len]:
            if self._by_page.get(key) is promise:
                del self._by_page[key]

    def _keys(self, namespace: Hashable, token_ids: TokenIds) -> Iterator[int]:
        """A hash of the namespace and all tokens up to its end, per whole page."""
        key = hash(namespace)
        for start in range(0, len(token_ids) - self._page_len + 1, self._page_len):
            key = hash((key, token_ids[start : start + self._page_len]))
            yield key
