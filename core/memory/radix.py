"""The prefix cache of one language model: which pages hold the keys and values of which tokens.

Knows token ids, page ids and owners' names; nothing of models, and nothing of what is evicted when.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import cast

from ..step import Shortfall
from .arena import Arena
from .entries import ABSENT, Pages
from .host import HostCopy
from .page_tree import PageTree
from .pages import PageClass, take_together
from .promises import Promise, PromiseBook
from .tree import Node, TokenIds


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache has of a prompt: at most all tokens but the last.

    Fields:
        node: to be locked before anything else is leased, and until no page of the match is used any more.
        num_tokens: matched in all.
        tail_len: how many of them are the first tokens of the tail page.
        waits_for, waits_until: the open promise that would extend the match, and up to how many tokens.
    """

    node: Node
    num_tokens: int
    tail_len: int = 0
    waits_for: Promise | None = None
    waits_until: int = 0

    @property
    def pages(self) -> list[Pages]:
        """The full pages, as they lie now: ids change when pages are moved."""
        pages = [cast(Pages, entry) for node in self.node.path() for entry in node.entries]
        return pages[:-1] if self.tail_len else pages

    @property
    def tail_page(self) -> Pages | None:
        """The page whose first `tail_len` tokens match, to be copied into one of the caller's own."""
        return cast(Pages, self.node.entries[-1]) if self.tail_len else None

    @property
    def is_launched(self) -> bool:
        """False while somebody is about to compute more of the prompt. Once it turns True, match anew."""
        promise = self.waits_for
        return promise is None or not promise.is_open or promise.num_launched >= self.waits_until


@dataclass(slots=True)
class PrefixStats:
    """What was asked of a prefix cache and what it had, in tokens."""

    num_queries: int = 0
    num_query_tokens: int = 0
    num_hit_tokens: int = 0


class PrefixCache:
    """Prefixes in whole pages of `page_len` tokens, with one page of each class of `groups` per page position.

    Args:
        windows: per group, how many tokens it attends to, the newest included; None for all. A match ends where a
            group lacks (ABSENT) what its window needs.
        cost_key: by which the cost model knows this model's prefills.
    """

    def __init__(
        self,
        arena: Arena,
        groups: Sequence[PageClass],
        page_len: int,
        *,
        windows: Sequence[int | None] | None = None,
        cost_key: Hashable = None,
    ) -> None:
        self.groups = tuple(groups)
        self.page_len = page_len
        self.stats = PrefixStats()
        self._windows = {i: window for i, window in enumerate(windows or ()) if window is not None}
        self._clock = arena.clock
        self._tree = PageTree(arena, self.groups, page_len, cost_key)
        self._promises = PromiseBook(page_len)
        self._pins: dict[tuple[Hashable, TokenIds], Node] = {}

    # Finding

    def match(self, namespace: Hashable, token_ids: Sequence[int], *, counts: bool = True) -> Match:
        """The longest prefix there is; host copies of it are brought back as far as there is room.

        Args:
            counts: False when asking again for a request that the statistics know.
        """
        wanted = tuple(token_ids)[: max(len(token_ids) - 1, 0)]
        path = self._as_windows_allow(self._tree.restore(self._tree.walk(namespace, wanted)))
        num_full = sum(len(node.token_ids) for node in path)
        tail_len = self._append_tail(path, wanted[num_full:])
        self._tree.touch(path)
        promise, until = self._promises.find(namespace, wanted, num_full)
        found = Match(path[-1], num_full + tail_len, tail_len, promise, until)
        if counts and found.is_launched:
            self.stats.num_queries += 1
            self.stats.num_query_tokens += len(token_ids)
            self.stats.num_hit_tokens += found.num_tokens
        return found

    def lock(self, node: Node) -> None:
        """Keeps the node's pages and all above it."""
        self._tree.lock(node)

    def unlock(self, node: Node) -> None:
        """Takes one lock back, once every step in flight is complete."""
        self._clock.retire(lambda: self._tree.unlock(node))

    def is_valid(self, node: Node) -> bool:
        """False once the node's pages turned out to hold nonsense: whoever used them must compute anew."""
        return not any(step.is_forgotten for step in node.path())

    def _append_tail(self, path: list[Node], token_ids: TokenIds) -> int:
        """Adds the node of one page that begins with the longest part of the ids, if any; how long that is."""
        tail, tail_len = self._tree.best_tail(path[-1], token_ids)
        if tail is None:
            return 0
        with_tail = self._tree.restore([*path, self._tree.split(tail, 1)])
        if len(with_tail) == len(path) or ABSENT in with_tail[-1].entries[0]:
            return 0
        path.append(with_tail[-1])
        return tail_len

    def _as_windows_allow(self, path: list[Node]) -> list[Node]:
        """The longest part of the path after which every group has all that its window needs."""
        if not self._windows:
            return path
        entries = [entry for node in path for entry in node.entries]
        present = dict.fromkeys(self._windows, 0)  # pages in a row up to here, by group
        longest = 0
        for count, entry in enumerate(entries, 1):
            for group in present:
                present[group] = 0 if entry[group] == ABSENT else present[group] + 1
            if all(
                present[group] * self.page_len >= min(window - 1, count * self.page_len)
                for group, window in self._windows.items()
            ):
                longest = count
        cut: list[Node] = []
        for node in path:
            if node.entries and longest == 0:
                break
            node = self._tree.split(node, longest) if len(node.entries) > longest else node
            cut.append(node)
            longest -= len(node.entries)
        return cut

    def take(self, count: int, owner: str) -> list[Pages] | Shortfall:
        """`count` pages of every group at once, as entries; all or nothing."""
        taken = take_together(self.groups, count, owner)
        return taken if isinstance(taken, Shortfall) else list(zip(*taken, strict=True))

    # Promises

    def promise(self, namespace: Hashable, token_ids: Sequence[int], owner: str) -> Promise:
        """Says that `owner` is going to compute the whole pages of `token_ids` that are not there.

        Others that match them wait. To be broken when the owner is done with its pages, whatever became of it.
        """
        whole = tuple(token_ids)[: len(token_ids) // self.page_len * self.page_len]
        path = self._tree.restore(self._tree.walk(namespace, whole))
        promise = Promise(namespace, whole, owner, sum(len(node.token_ids) for node in path))
        promise.node = path[-1]
        self.lock(promise.node)
        self._promises.add(promise)
        return promise

    def launched(self, promise: Promise, num_tokens: int, pages: Sequence[Pages]) -> None:
        """The first `num_tokens` of the prompt are launched: their whole pages can be matched from now on.

        Args:
            pages: of the prompt from its start, at least those. The cache takes references of its own; the owner's
                stay the owner's until `insert` or `free`.
        """
        num_tokens = min(num_tokens, len(promise.token_ids)) // self.page_len * self.page_len
        if num_tokens <= promise.num_launched:
            return
        node = self._cover(promise.namespace, promise.token_ids[:num_tokens], pages)
        self.lock(node)
        if promise.node is not None:
            self.unlock(promise.node)
        promise.node = node
        self._promises.launched(promise, num_tokens)

    def break_promise(self, promise: Promise, *, is_valid: bool = True) -> None:
        """The owner is done, was aborted, or failed: nothing more will come. Idempotent.

        Args:
            is_valid: False when pages that the owner launched may hold nonsense: they are forgotten, and all below.
        """
        self._promises.broken(promise)
        if promise.node is None:
            return
        if not is_valid:
            self._forget_pages_of(promise)
        self.unlock(promise.node)
        promise.node = None

    def _forget_pages_of(self, promise: Promise) -> None:
        for node in self._tree.walk(promise.namespace, promise.token_ids[: promise.num_launched])[1:]:
            for i, entry in enumerate(node.entries):
                if any(promise.owner in self._owners(group, entry[group]) for group in range(len(self.groups))):
                    if i > 0:
                        self._tree.split(node, i)
                    self._tree.forget(node)
                    return

    # Handing over

    def insert(self, namespace: Hashable, token_ids: Sequence[int], pages: Sequence[Pages], owner: str) -> int:
        """Hands the whole pages of `token_ids` over: `owner` has no reference to any of them afterwards.

        Args:
            token_ids: those whose keys and values are computed.
            pages: from the start, those that were matched too. What the cache has already is freed.

        Returns:
            How many tokens of the prefix the cache has now.
        """
        count = len(token_ids) // self.page_len
        node = self._cover(namespace, tuple(token_ids)[: count * self.page_len], pages)
        self.lock(node)
        for group, page_class in enumerate(self.groups):
            page_class.free_held([entry[group] for entry in pages[:count]], owner)
        self.unlock(node)
        return count * self.page_len

    def _cover(self, namespace: Hashable, token_ids: TokenIds, pages: Sequence[Pages]) -> Node:
        node = self._tree.cover(namespace, token_ids, pages)
        for pinned_namespace, prefix in list(self._pins):
            if pinned_namespace == namespace:
                self.pin(namespace, prefix)
        return node

    def _owners(self, group: int, page: int | HostCopy | None) -> Sequence[str]:
        return self.groups[group].owners_of(page) if isinstance(page, int) else ()

    # Pinning and flushing

    def pin(self, namespace: Hashable, token_ids: Sequence[int]) -> int:
        """Keeps the whole pages of the prefix until `unpin`: those that are there, and others when they come.

        Returns:
            How many tokens are there.
        """
        key = (namespace, tuple(token_ids))
        before = self._pins.get(key)
        path = self._tree.restore(self._tree.walk(*key))
        if path[-1] is not before:
            self.lock(path[-1])
            self._pins[key] = path[-1]
            if before is not None:
                self.unlock(before)
        return sum(len(node.token_ids) for node in path)

    def unpin(self, namespace: Hashable, token_ids: Sequence[int]) -> None:
        """Lets it be evicted again."""
        self.unlock(self._pins.pop((namespace, tuple(token_ids))))

    def hold(self, namespace: Hashable, token_ids: Sequence[int]) -> Node:
        """Locks what is there of the prefix, whole pages; to be unlocked by the node."""
        node = self._tree.walk(namespace, tuple(token_ids))[-1]
        self.lock(node)
        return node

    def flush(self) -> None:
        """Forgets all that nobody has locked, host copies too."""
        self._tree.forget_unlocked()

    # Figures

    @property
    def owner(self) -> str:
        """Its name in the ledger."""
        return self._tree.owner

    @property
    def num_tokens(self) -> int:
        """Cached on the device at the moment."""
        return self._tree.num_warm_entries * self.page_len

    @property
    def num_unused_tokens(self) -> int:
        """Of `num_tokens`, those that nobody has locked: kept for later."""
        return self._tree.num_evictable(self.groups[0]) * self.page_len

    @property
    def num_host_tokens(self) -> int:
        """Cached in the host tier at the moment."""
        return self._tree.num_cold_entries * self.page_len

    @property
    def num_evicted_tokens(self) -> int:
        return self._tree.num_evicted * self.page_len

    @property
    def num_restored_tokens(self) -> int:
        return self._tree.num_restored * self.page_len
