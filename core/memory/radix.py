"""The prefix cache of one language model: which pages hold the keys and values of which tokens.

A compressed radix tree per namespace. An edge is a run of whole pages; each page position holds one page id per layer
group. Locked nodes stay (and so do all above them); of the others the cheapest leaf loses its last page first.
Knows token ids and page ids; nothing of models.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from ..step import Work
from .arena import Arena
from .pages import PageClass
from .promises import Promise, PromiseBook

Pages = tuple[int, ...]
"""One page id per layer group."""


class Node:
    """An edge and what hangs below it.

    Fields:
        token_ids: of the edge, whole pages.
        pages: one tuple per page of the edge.
        children: by their first page of tokens; `keys` are the same, sorted.
        num_locks: locks on this node and all below it.
        floor, used: the evictor's floor and the cache's count of uses when it was used last.
    """

    __slots__ = (
        "children", "floor", "is_dead", "is_offered", "keys", "num_locks", "pages", "parent", "token_ids", "used",
    )  # fmt: skip

    def __init__(self, parent: "Node | None", token_ids: tuple[int, ...], pages: list[Pages]) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.pages = pages
        self.children: dict[tuple[int, ...], Node] = {}
        self.keys: list[tuple[int, ...]] = []
        self.num_locks = 0
        self.floor = 0.0
        self.used = 0
        self.is_offered = False
        self.is_dead = False


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache has of a prompt: at most all tokens but the last.

    Fields:
        pages: the full pages, one id per layer group each.
        tail_page, tail_len: a page whose first `tail_len` tokens are the next of the prompt: to be copied.
        node: what to lock while any of the pages (the tail's too) is used.
        num_tokens: matched in all: full pages and tail.
        waits_for, waits_until: the open promise that would extend the match, and up to how many tokens.
    """

    pages: list[Pages]
    tail_page: Pages | None
    tail_len: int
    node: Node
    num_tokens: int
    waits_for: Promise | None = None
    waits_until: int = 0

    @property
    def is_launched(self) -> bool:
        """False while somebody is about to compute more of the prompt. Once True again, match anew."""
        promise = self.waits_for
        return promise is None or not promise.is_open or promise.num_launched >= self.waits_until


class PrefixCache:
    """Prefixes in whole pages of `page_len` tokens, one page per class of `groups` each.

    Fields:
        num_queries, num_query_tokens, num_hit_tokens: what was asked for and what was found.
        num_tokens: cached at the moment.
    """

    def __init__(self, arena: Arena, groups: Sequence[PageClass], page_len: int, *, cost_key: Hashable = None) -> None:
        self.groups = tuple(groups)
        self.page_len = page_len
        self.owner = f"prefix:{self.groups[0].name}"
        self.num_queries = self.num_query_tokens = self.num_hit_tokens = 0
        self._arena = arena
        self._cost_key = cost_key if cost_key is not None else self.owner
        self._bytes_per_page = sum(group.page_bytes for group in self.groups)
        self._roots: dict[Hashable, Node] = {}
        self._promises = PromiseBook(page_len)
        self._pins: dict[tuple[Hashable, tuple[int, ...]], Node] = {}
        self._num_pages = self._num_locked = 0
        self._uses = 0
        self._leaves: list[tuple[float, int, int, Node]] = []
        for i, group in enumerate(self.groups):
            group.on_moved(lambda moves, i=i: self._moved(i, moves))
        arena.tenants.append(self)

    @property
    def num_tokens(self) -> int:
        return self._num_pages * self.page_len

    # Finding

    def match(self, namespace: Hashable, token_ids: Sequence[int], *, counts: bool = True) -> Match:
        """The longest prefix there is. Lock its node before anything else is leased.

        Args:
            counts: False for asking again about a request that the statistics know.
        """
        token_ids = tuple(token_ids)
        limit = len(token_ids) - 1
        path = self._walk(namespace, token_ids[: max(limit, 0)])
        node = path[-1]
        pages = [page for node in path for page in node.pages]
        num_full = len(pages) * self.page_len
        tail, tail_len = self._best_tail(node, token_ids[num_full:limit])
        if tail is not None:
            node = self._split(tail, 1)
            path.append(node)
        self._touch(path)
        promise, until = self._promises.find(namespace, token_ids[: max(limit, 0)], num_full)
        found = Match(pages, node.pages[0] if tail else None, tail_len, node, num_full + tail_len, promise, until)
        if counts and found.is_launched:
            self.num_queries += 1
            self.num_query_tokens += len(token_ids)
            self.num_hit_tokens += found.num_tokens
        return found

    def lock(self, node: Node) -> None:
        """Keeps the node's pages and all above them."""
        step: Node | None = node
        while step is not None:
            if step.num_locks == 0:
                self._num_locked += len(step.pages)
            step.num_locks += 1
            step = step.parent

    def unlock(self, node: Node) -> None:
        """Takes one lock back, once every step in flight is complete."""
        self._arena.clock.retire(lambda: self._unlock(node))

    # Promises

    def promise(self, namespace: Hashable, token_ids: Sequence[int], owner: str) -> Promise:
        """Says that `owner` is going to compute the whole pages of `token_ids` that are not there."""
        whole = tuple(token_ids[: len(token_ids) // self.page_len * self.page_len])
        path = self._walk(namespace, whole)
        promise = Promise(namespace, whole, owner, sum(len(node.token_ids) for node in path))
        promise.node = path[-1]
        self.lock(promise.node)
        self._promises.add(promise)
        return promise

    def launched(self, promise: Promise, num_tokens: int, pages: Sequence[Pages]) -> None:
        """The first `num_tokens` of the prompt are launched: their whole pages can be matched from now on.

        Args:
            pages: of the prompt from its start, at least those. The cache takes a reference of its own to each that
                it did not have; the owner's stay the owner's until `insert` or `free`.
        """
        count = min(num_tokens, len(promise.token_ids)) // self.page_len
        node = self._add(promise.namespace, promise.token_ids[: count * self.page_len], pages)
        if node is not promise.node:
            self.lock(node)
            self.unlock(promise.node)
            promise.node = node
        self._promises.launched(promise, count * self.page_len)

    def break_promise(self, promise: Promise, *, is_valid: bool = True) -> None:
        """The owner is done with it, was aborted, or failed: what is not launched will not come. Idempotent.

        Args:
            is_valid: False when the owner's launched pages may hold nonsense; they are forgotten too.
        """
        self._promises.broken(promise)
        if promise.node is not None:
            self.unlock(promise.node)
            promise.node = None

    def insert(self, namespace: Hashable, token_ids: Sequence[int], pages: Sequence[Pages], owner: str) -> int:
        """Hands the whole pages of `token_ids` over: `owner` has no reference to any of them afterwards.

        Args:
            pages: from the start, those that were matched too. What the cache has already is freed.

        Returns:
            Tokens that are new in the cache.
        """
        count = min(len(token_ids) // self.page_len, len(pages))
        before = self._num_pages
        self._add(namespace, tuple(token_ids[: count * self.page_len]), pages)
        for i, group in enumerate(self.groups):
            group.free([page[i] for page in pages[:count] if owner in group.owners_of(page[i])], owner)
        return (self._num_pages - before) * self.page_len

    # Pinning and flushing

    def pin(self, namespace: Hashable, token_ids: Sequence[int]) -> int:
        """Keeps the whole pages of the prefix that are there until `unpin`; returns how many tokens that is."""
        key = (namespace, tuple(token_ids))
        path = self._walk(namespace, key[1])
        if key in self._pins:
            self.unlock(self._pins.pop(key))
        self._pins[key] = path[-1]
        self.lock(path[-1])
        return sum(len(node.token_ids) for node in path)

    def unpin(self, namespace: Hashable, token_ids: Sequence[int]) -> None:
        """Lets it be evicted again."""
        self.unlock(self._pins.pop((namespace, tuple(token_ids))))

    def flush(self) -> None:
        """Forgets all that nobody has locked."""
        while self.evict(self.groups[0]):
            pass

    # For the arena

    def num_evictable(self, page_class: PageClass) -> int:
        """Pages of the class that could be evicted."""
        return self._num_pages - self._num_locked if page_class in self.groups else 0

    def next_price(self, page_class: PageClass) -> float | None:
        """The price of the page that `evict` would take."""
        if page_class not in self.groups or not self._settle():
            return None
        return self._leaves[0][0]

    def evict(self, page_class: PageClass) -> bool:
        """Frees the last page of the cheapest leaf."""
        if page_class not in self.groups or not self._settle():
            return False
        price, _, _, node = self._leaves[0]
        self._arena.evictor.evicted(price)
        self._trim(node)
        return True

    # Inside: the tree

    def _walk(self, namespace: Hashable, token_ids: tuple[int, ...]) -> list[Node]:
        """The path of nodes that cover the longest prefix in whole pages; the last one is split where it ends."""
        node = self._roots.setdefault(namespace, Node(None, (), []))
        path = [node]
        at, page_len = 0, self.page_len
        while (child := node.children.get(token_ids[at : at + page_len])) is not None:
            count = 1
            for start in range(page_len, len(child.token_ids), page_len):
                if child.token_ids[start : start + page_len] != token_ids[at + start : at + start + page_len]:
                    break
                count += 1
            node = self._split(child, count)
            path.append(node)
            at += count * page_len
        return path

    def _best_tail(self, node: Node, token_ids: tuple[int, ...]) -> tuple[Node | None, int]:
        """The child whose first page agrees longest with the ids, and for how many: a neighbour in sorted order."""
        i = bisect_left(node.keys, token_ids)
        best, best_len = None, 0
        for key in node.keys[max(i - 1, 0) : i + 1]:
            agreed = 0
            while agreed < min(len(key), len(token_ids)) and key[agreed] == token_ids[agreed]:
                agreed += 1
            if agreed > best_len:
                best, best_len = node.children[key], agreed
        return best, best_len

    def _split(self, node: Node, num_pages: int) -> Node:
        """A node that holds the first pages of the edge; the given one keeps the rest, below it."""
        if num_pages == len(node.pages):
            return node
        cut = num_pages * self.page_len
        upper = Node(node.parent, node.token_ids[:cut], node.pages[:num_pages])
        upper.num_locks, upper.floor, upper.used = node.num_locks, node.floor, node.used
        assert node.parent is not None, "Roots have no edge to split."
        node.parent.children[node.token_ids[: self.page_len]] = upper
        node.parent, node.token_ids, node.pages = upper, node.token_ids[cut:], node.pages[num_pages:]
        self._link(upper, node)
        return upper

    def _link(self, parent: Node, child: Node) -> None:
        key = child.token_ids[: self.page_len]
        parent.children[key] = child
        insort(parent.keys, key)

    def _add(self, namespace: Hashable, token_ids: tuple[int, ...], pages: Sequence[Pages]) -> Node:
        """Makes the tree cover the ids, with a reference to each page that is new; the node where they end."""
        path = self._walk(namespace, token_ids)
        num_there = sum(len(node.pages) for node in path)
        new = [tuple(page) for page in pages[num_there : len(token_ids) // self.page_len]]
        if new:
            for i, group in enumerate(self.groups):
                group.retain([page[i] for page in new], self.owner)
            child = Node(path[-1], token_ids[num_there * self.page_len :], new)
            self._link(path[-1], child)
            self._num_pages += len(new)
            path.append(child)
        self._touch(path)
        self._offer(path[-1])
        return path[-1]

    def _trim(self, node: Node) -> None:
        """Drops the last page of a leaf, and the leaf when it was its only one."""
        pages = node.pages.pop()
        for i, group in enumerate(self.groups):
            group.free([pages[i]], self.owner)
        self._num_pages -= 1
        if node.pages:
            node.token_ids = node.token_ids[: -self.page_len]
            return
        parent = node.parent
        assert parent is not None, "A root has no pages."
        node.is_dead = True
        del parent.children[node.token_ids]
        parent.keys.remove(node.token_ids)
        self._offer(parent)

    # Inside: order of eviction

    def _touch(self, path: Sequence[Node]) -> None:
        self._uses += 1
        for node in path:
            node.floor, node.used = self._arena.evictor.floor, self._uses

    def _offer(self, node: Node) -> None:
        """Files a leaf that may be evicted."""
        if self._is_evictable(node) and not node.is_offered:
            node.is_offered = True
            heapq.heappush(self._leaves, (self._price(node), node.used, id(node), node))

    def _is_evictable(self, node: Node) -> bool:
        return not (node.num_locks or node.children or node.is_dead) and bool(node.pages)

    def _settle(self) -> bool:
        """Brings the cheapest leaf to the front; False when there is none."""
        while self._leaves:
            price, used, _, node = self._leaves[0]
            current = (self._price(node), node.used) if self._is_evictable(node) else None
            if current == (price, used):
                return True
            heapq.heappop(self._leaves)
            node.is_offered = False
            self._offer(node)
        return False

    def _price(self, node: Node) -> float:
        """What the last page of the node is worth: computing its tokens after all before them."""
        depth, step = 0, node.parent
        while step is not None:
            depth += len(step.token_ids)
            step = step.parent
        context = depth + len(node.token_ids)
        work = Work(1, self.page_len, context, self.page_len * context)
        seconds = self._arena.evictor.seconds(self._cost_key, work)
        return node.floor + max(seconds, 0.0) / self._bytes_per_page

    def _unlock(self, node: Node) -> None:
        step: Node | None = node
        while step is not None:
            step.num_locks -= 1
            if step.num_locks == 0:
                self._num_locked -= len(step.pages)
                self._offer(step)
            step = step.parent
        self._arena.version += 1

    def _moved(self, group: int, moves: Mapping[int, int]) -> None:
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            for i, pages in enumerate(node.pages):
                if pages[group] in moves:
                    node.pages[i] = (*pages[:group], moves[pages[group]], *pages[group + 1 :])
