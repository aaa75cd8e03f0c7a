"""A radix tree whose entries are pages of an arena: it holds a reference to each, and gives the cheapest back.

Locked nodes stay, and so do all above them; of the others the cheapest leaf loses its last page first, to the host
tier while that has room. Knows nothing of prompts, promises and models.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from ..step import Work
from .arena import Arena
from .entries import ABSENT, Copies, EntryStore, Pages
from .evict import PriceQueue
from .pages import PageClass
from .tree import Node, TokenIds, Tree


class PageTree(Tree):
    """A tenant of the arena that holds one page of each class of `groups` per entry.

    Fields:
        owner: its name among the owners of pages and host copies.
        num_evicted, num_restored: entries that left the device, and that came back from the host.
    """

    def __init__(self, arena: Arena, groups: Sequence[PageClass], page_len: int, cost_key: Hashable) -> None:
        super().__init__(page_len)
        self.groups = tuple(groups)
        self.owner = f"prefix:{self.groups[0].name}"
        self.num_evicted = self.num_restored = 0
        self._arena = arena
        self._cost_key = cost_key
        self._store = EntryStore(groups, arena.host, self.owner)
        self._num_uses = 0
        self._forgotten: set[Node] = set()
        self._num_warm = [0] * len(self.groups)
        self._num_locked = [0] * len(self.groups)
        self._warm_leaves: PriceQueue[Node] = PriceQueue(self._rank_warm)
        self._cold_leaves: PriceQueue[Node] = PriceQueue(self._rank_cold)
        for group, page_class in enumerate(self.groups):
            page_class.on_moved(partial(self._moved, group))
        arena.add_tenant(self)

    # Adding

    def cover(self, namespace: Hashable, token_ids: TokenIds, pages: Sequence[Pages]) -> Node:
        """Makes the tree cover the ids, whole pages from the start; returns the node where they end.

        It takes a reference to each page that it lacks: of new entries, of cold ones and of absent groups.
        """
        if len(pages) * self.page_len < len(token_ids):
            raise ValueError(f"{len(token_ids)} tokens take {len(token_ids) // self.page_len} pages, not {len(pages)}.")
        path = self.walk(namespace, token_ids)
        at = 0
        for node in path:
            self._fill(node, pages[at : at + len(node.entries)])
            at += len(node.entries)
        new = [tuple(entry) for entry in pages[at : len(token_ids) // self.page_len]]
        if new:
            self._store.hold(new)
            self._store.add_to(self._num_warm, new)
            path.append(self.append(path[-1], token_ids[at * self.page_len :], [*new]))
        self.touch(path)
        self._warm_leaves.offer(path[-1])
        return path[-1]

    def _fill(self, node: Node, pages: Sequence[Pages]) -> None:
        """Replaces what is cold or absent in the node's entries; all nodes above it are warm."""
        if not node.num_cold and len(self.groups) == 1:  # absent is a page of one group among several
            return
        for i, (entry, page) in enumerate(zip(node.entries, pages, strict=True)):
            if i < node.num_warm:
                if ABSENT not in entry:
                    continue
                old = cast(Pages, entry)
                new = tuple(b if a == ABSENT else a for a, b in zip(old, page, strict=True))
                added = tuple(b if a == ABSENT else ABSENT for a, b in zip(old, page, strict=True))
            else:
                self._store.release([entry])
                new = added = tuple(page)
            node.entries[i] = new
            self._store.hold([added])
            self._store.add_to(self._num_warm, [added])
            if node.num_locks:
                self._store.add_to(self._num_locked, [added])
        self.set_warm(node, len(node.entries))

    def split(self, node: Node, num_pages: int) -> Node:
        upper = super().split(node, num_pages)
        self._offer(upper)
        return upper

    # Using

    def touch(self, path: Iterable[Node]) -> None:
        """The nodes are used now."""
        self._num_uses += 1
        for node in path:
            node.floor, node.used, node.rank = self._arena.prices.floor, self._num_uses, None

    def lock(self, node: Node) -> None:
        """Keeps the node and all above it."""
        for step in node.path():
            if step.num_locks == 0:
                self._store.add_to(self._num_locked, step.entries[: step.num_warm])
            step.num_locks += 1

    def unlock(self, node: Node) -> None:
        """Takes one lock back. No step in flight may use the node by it any more."""
        for step in node.path()[::-1]:
            step.num_locks -= 1
            assert step.num_locks >= 0, "A node was unlocked more often than locked."
            if step.num_locks == 0:
                if step.is_forgotten:
                    self._forgotten.remove(step)
                    self._store.drop(step.entries)
                else:
                    self._store.add_to(self._num_locked, step.entries[: step.num_warm], -1)
                    self._offer(step)
        self._arena.became_evictable()

    def restore(self, path: list[Node]) -> list[Node]:
        """Brings cold entries of the path back to the device, as far as there is room; the path that is warm then."""
        if not path[-1].num_cold:
            return path
        end = path[-1]
        self.lock(end)
        warm = list(path)
        for i, node in enumerate(path):
            while node.num_cold and self._load(node):
                pass
            if node.num_cold:
                warm = path[:i] + ([self.split(node, node.num_warm)] if node.num_warm else [])
                break
        self.unlock(end)
        return warm

    def _load(self, node: Node) -> bool:
        """Brings the first cold entry of a locked node back; False when there is no page for it."""
        entry = self._store.load(cast(Copies, node.entries[node.num_warm]))
        if entry is None:
            return False
        node.entries[node.num_warm] = entry
        self._store.add_to(self._num_warm, [entry])
        self._store.add_to(self._num_locked, [entry])
        self.set_warm(node, node.num_warm + 1)
        self.num_restored += 1
        return True

    # Losing

    def forget(self, node: Node) -> None:
        """Takes the node and all below it out; what is locked keeps its pages until it is unlocked."""
        self.remove(node)
        parent = node.parent
        for step in node.subtree():
            warm = step.entries[: step.num_warm]
            self._store.add_to(self._num_warm, warm, -1)
            self._store.release(step.entries[step.num_warm :])
            step.entries = warm
            step.is_forgotten = True
            self._warm_leaves.withdraw(step)
            self._cold_leaves.withdraw(step)
            if step.num_locks:
                self._forgotten.add(step)
                self._store.add_to(self._num_locked, warm, -1)
            else:
                self._store.drop(warm)
        if parent is not None:
            self._offer(parent)

    def forget_unlocked(self) -> None:
        """Takes out all that nobody has locked."""
        stack = list(self.roots.values())
        while stack:
            for child in list(stack.pop().children.values()):
                if child.num_locks:
                    stack.append(child)
                else:
                    self.forget(child)

    def _evict_last(self, node: Node) -> None:
        """The last warm entry of a leaf goes to the host, or is lost with all that hangs on it."""
        self.num_evicted += 1
        last = node.num_warm - 1
        entry = cast(Pages, node.entries[last])
        copies = self._store.store(entry)
        if copies is None and last == 0:
            self.forget(node)
            return
        if copies is None:
            self._cut_after(node, last)
        else:
            node.entries[last] = copies
        self._store.add_to(self._num_warm, [entry], -1)
        self._store.drop([entry])
        self.set_warm(node, last)
        self._offer(node)
        if last == 0 and node.parent is not None:
            self._offer(node.parent)

    def _cut_after(self, node: Node, num_entries: int) -> None:
        """Takes out the node's later entries, of which only the first may be warm, and drops all cold ones."""
        for child in list(node.children.values()):
            self.forget(child)
        self._store.release(node.entries[node.num_warm :])
        del node.entries[num_entries:]
        node.token_ids = node.token_ids[: num_entries * self.page_len]

    # For the arena

    def num_evictable(self, page_class: PageClass) -> int:
        if page_class not in self.groups:
            return 0
        group = self.groups.index(page_class)
        return self._num_warm[group] - self._num_locked[group]

    def next_price(self, page_class: PageClass) -> float | None:
        found = self._warm_leaves.cheapest() if page_class in self.groups else None
        return None if found is None else found[0]

    def evict(self, page_class: PageClass) -> bool:
        found = self._warm_leaves.cheapest() if page_class in self.groups else None
        if found is None:
            return False
        price, node = found
        self._arena.prices.evicted(price)
        self._evict_last(node)
        return True

    def next_copy_price(self) -> float | None:
        found = self._cold_leaves.cheapest()
        return None if found is None else found[0]

    def drop_copy(self) -> None:
        found = self._cold_leaves.cheapest()
        assert found is not None, "There is no copy to drop."
        node = found[1]
        if len(node.entries) == 1:
            self.forget(node)
        else:
            self._store.release([node.entries.pop()])
            node.token_ids = node.token_ids[: -self.page_len]
            self._offer(node)

    # Inside: order

    def _offer(self, node: Node) -> None:
        self._warm_leaves.offer(node)
        self._cold_leaves.offer(node)

    def _rank_warm(self, node: Node) -> tuple[float, int] | None:
        if node.num_locks or node.num_warm_children or node.is_forgotten or not node.num_warm:
            return None
        if node.rank is None:
            node.rank = (self._price(node, node.num_warm), node.used)
        return node.rank

    def _rank_cold(self, node: Node) -> tuple[float, int] | None:
        if node.num_locks or node.children or node.is_forgotten or not node.num_cold:
            return None
        return self._price(node, len(node.entries)), node.used

    def _price(self, node: Node, num_entries: int) -> float:
        """What the last of the node's first entries is worth: its tokens' work after all that are before them."""
        context = node.depth + num_entries * self.page_len
        saves = Work(new_tokens=self.page_len, context_tokens=context, attended_pairs=self.page_len * context)
        return node.floor + self._arena.prices.worth(self._cost_key, saves, self._store.nbytes)

    def _moved(self, group: int, moves: Mapping[int, int]) -> None:
        for node in (*self.nodes(), *self._forgotten):
            for i in range(node.num_warm):
                entry = cast(Pages, node.entries[i])
                if entry[group] in moves:
                    node.entries[i] = (*entry[:group], moves[entry[group]], *entry[group + 1 :])

    @property
    def num_warm_entries(self) -> int:
        return sum(node.num_warm for node in self.nodes())

    @property
    def num_cold_entries(self) -> int:
        return sum(node.num_cold for node in self.nodes())

    def check(self) -> None:
        """Asserts that the tree is in order, and that it holds exactly the pages and copies that its nodes name."""
        super().check()
        warm = [entry for node in self.nodes() for entry in node.entries[: node.num_warm]]
        cold = [entry for node in self.nodes() for entry in node.entries[node.num_warm :]]
        locked = [entry for node in self.nodes() if node.num_locks for entry in node.entries[: node.num_warm]]
        for counts, entries in ((self._num_warm, warm), (self._num_locked, locked)):
            expected = [0] * len(self.groups)
            self._store.add_to(expected, entries)
            assert counts == expected, f"'{self.owner}' counts {counts} pages, has {expected}"
        self._store.check(warm + [entry for node in self._forgotten for entry in node.entries], cold)
