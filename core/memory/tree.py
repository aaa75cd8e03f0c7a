"""A compressed radix tree over token ids, in whole pages. It keeps shape only: no counts, no prices, no bytes.

An edge is a run of pages, each with an entry: warm while it is on the device, cold while it is on the host. Along any
path warm entries come first.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator

from .entries import Entry

TokenIds = tuple[int, ...]


class Node:
    """An edge and what hangs below it.

    Fields:
        token_ids: of the edge, whole pages; empty in a root.
        depth: tokens above the edge.
        entries: one per page of the edge; the first `num_warm` are warm, the others cold.
        children: by their first page of token ids; `keys` are the same, sorted.
        num_warm_children: children with a warm entry.
        num_locks: locks on this node and on all below it.
        floor, used: the floor of prices, and the cache's count of uses, when it was used last.
        rank: its last warm entry's (price, used), while it is known (see page_tree.py).
        namespace: of a root.
        is_forgotten: it is in no tree any more; its pages go when the last lock does.
    """

    __slots__ = (
        "children", "depth", "entries", "floor", "is_forgotten", "keys", "namespace", "num_locks", "num_warm",
        "num_warm_children", "parent", "rank", "token_ids", "used",
    )  # fmt: skip

    def __init__(self, parent: "Node | None", token_ids: TokenIds, entries: list[Entry]) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.depth: int = parent.depth + len(parent.token_ids) if parent is not None else 0
        self.entries = entries
        self.num_warm = len(entries)
        self.num_warm_children = 0
        self.children: dict[TokenIds, Node] = {}
        self.keys: list[TokenIds] = []
        self.num_locks = 0
        self.floor = 0.0
        self.used = 0
        self.rank: tuple[float, int] | None = None
        self.namespace: Hashable = None
        self.is_forgotten = False

    @property
    def num_cold(self) -> int:
        return len(self.entries) - self.num_warm

    def path(self) -> list["Node"]:
        """From the root to this node."""
        nodes = [self]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes[::-1]

    def subtree(self) -> Iterator["Node"]:
        """This node and all below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


class Tree:
    """One root per namespace. A namespace without entries has none: walks in it end in a root that nobody keeps."""

    def __init__(self, page_len: int) -> None:
        self.page_len = page_len
        self.roots: dict[Hashable, Node] = {}

    def walk(self, namespace: Hashable, token_ids: TokenIds) -> list[Node]:
        """The nodes that cover the longest known prefix in whole pages; the last one is split where it ends."""
        node = self.roots.get(namespace) or _root(namespace)
        path = [node]
        at, page_len = 0, self.page_len
        while (child := node.children.get(token_ids[at : at + page_len])) is not None:
            num_agreed = self._num_agreed(child.token_ids, token_ids[at : at + len(child.token_ids)])
            node = self.split(child, num_agreed)
            path.append(node)
            at += num_agreed * page_len
        return path

    def best_tail(self, node: Node, token_ids: TokenIds) -> tuple[Node | None, int]:
        """The child whose first page agrees longest with the ids, and for how many of them.

        It is a neighbour of the ids in sorted order.
        """
        best: Node | None = None
        best_len = 0
        i = bisect_left(node.keys, token_ids)
        for key in node.keys[max(i - 1, 0) : i + 1]:
            agreed = 0
            while agreed < min(len(key), len(token_ids)) and key[agreed] == token_ids[agreed]:
                agreed += 1
            if agreed > best_len:
                best, best_len = node.children[key], agreed
        return best, best_len

    def split(self, node: Node, num_pages: int) -> Node:
        """Cuts an edge after its first pages; returns the upper node. The given one is the lower, locks and all."""
        if num_pages == len(node.entries):
            return node
        parent, cut = node.parent, num_pages * self.page_len
        assert parent is not None and num_pages > 0, "A node is split inside its edge."
        upper = Node(parent, node.token_ids[:cut], node.entries[:num_pages])
        upper.num_warm = min(node.num_warm, num_pages)
        upper.num_locks, upper.floor, upper.used = node.num_locks, node.floor, node.used
        parent.children[node.token_ids[: self.page_len]] = upper
        node.parent, node.token_ids, node.entries = upper, node.token_ids[cut:], node.entries[num_pages:]
        node.num_warm -= upper.num_warm
        node.depth += cut
        upper.num_warm_children = int(node.num_warm > 0)
        key = node.token_ids[: self.page_len]
        upper.children[key] = node
        upper.keys.append(key)
        return upper

    def append(self, parent: Node, token_ids: TokenIds, entries: list[Entry]) -> Node:
        """A new node of warm entries below the end of a walk."""
        if parent.parent is None:
            self.roots[parent.namespace] = parent
        child = Node(parent, token_ids, entries)
        key = token_ids[: self.page_len]
        parent.children[key] = child
        insort(parent.keys, key)
        parent.num_warm_children += 1
        return child

    def remove(self, node: Node) -> None:
        """Takes a node, and all below it, out of the tree."""
        parent = node.parent
        assert parent is not None, "A root goes by itself, when it is empty."
        key = node.token_ids[: self.page_len]
        del parent.children[key]
        del parent.keys[bisect_left(parent.keys, key)]
        parent.num_warm_children -= int(node.num_warm > 0)
        if parent.parent is None and not parent.children:
            del self.roots[parent.namespace]

    def set_warm(self, node: Node, num_warm: int) -> None:
        """So many of the node's first entries are warm now."""
        was_warm, node.num_warm = node.num_warm > 0, num_warm
        node.rank = None
        if node.parent is not None:
            node.parent.num_warm_children += int(num_warm > 0) - int(was_warm)

    def nodes(self) -> Iterator[Node]:
        """All nodes with an edge."""
        for root in self.roots.values():
            for node in root.subtree():
                if node.parent is not None:
                    yield node

    def check(self) -> None:
        """Asserts that the tree is in order."""
        for node in self.nodes():
            parent, children = node.parent, node.children.values()
            assert parent is not None and parent.children.get(node.token_ids[: self.page_len]) is node
            assert node.depth == parent.depth + len(parent.token_ids), "A node is not as deep as the edges above."
            assert len(node.token_ids) == len(node.entries) * self.page_len > 0, "An edge is not its entries' tokens."
            assert node.keys == sorted(node.children), "Keys are not the children's."
            assert node.num_locks >= sum(child.num_locks for child in children), "A lock below is not known above."
            assert node.num_warm_children == sum(child.num_warm > 0 for child in children), "Warm children miscounted."
            assert not (node.num_cold and node.num_warm_children), "A warm entry hangs on a cold one."

    def _num_agreed(self, edge: TokenIds, token_ids: TokenIds) -> int:
        """Whole pages in which both agree; the first is known to."""
        if edge == token_ids:
            return len(edge) // self.page_len
        count = 1
        for start in range(self.page_len, len(edge), self.page_len):
            if edge[start : start + self.page_len] != token_ids[start : start + self.page_len]:
                break
            count += 1
        return count


def _root(namespace: Hashable) -> Node:
    root = Node(None, (), [])
    root.namespace = namespace
    return root
