"""Whose keys and values lie in which pages: what a running request holds, shared prefixes, parking.

`KvCache` is one model's; `KvMemory` is what one request holds of it. Knows token ids and pages; nothing of models'
forwards, sampling or scheduling.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ..core.memory import Arena, HostCopy, Match, Need, PrefixCache, Promise
from ..core.memory.pages import MOVED_AT_ONCE_BYTES
from ..core.memory.tree import Node
from ..core.staging import ints_to_device
from ..core.step import Shortfall
from .models.base import ModelShape


class KvMemory:
    """The pages of one request. Written by `KvCache` alone.

    Fields:
        owner: the request's id, for the ledger.
        namespace: prefixes are shared within it.
        pages: page ids in order of position; the first `num_shared` belong to the prefix cache.
        node: of the prefix cache, locked while the shared pages (or the tail) are used.
        tail: a match whose tail page is still to be copied into page `num_shared`.
        waits: a match that somebody else is about to extend; nothing is computed until then.
        promise: that this request computes the rest of its prompt.
        copy: the bytes of all pages while parked; `parked_pages` are the ids that they had.
        is_valid: False while the pages may hold nonsense: a copy that was to fill them has not come to its end.
    """

    __slots__ = (
        "copy",
        "is_valid",
        "namespace",
        "node",
        "num_shared",
        "owner",
        "pages",
        "parked_pages",
        "promise",
        "tail",
        "waits",
    )

    def __init__(self, owner: str, namespace: Hashable) -> None:
        self.owner = owner
        self.namespace = namespace
        self.pages: list[int] = []
        self.num_shared = 0
        self.node: Node | None = None
        self.tail: Match | None = None
        self.waits: Match | None = None
        self.promise: Promise | None = None
        self.copy: HostCopy | None = None
        self.parked_pages: list[int] = []
        self.is_valid = True

    @property
    def is_waiting(self) -> bool:
        return self.waits is not None and not self.waits.is_launched


class KvCache:
    """Keys and values of one model: its page class in the arena, its prefix cache.

    Args:
        page_len: tokens per page.
        has_prefixes: whether finished requests' pages are kept for others.
        cost_key: by which the cost model knows prefills.

    Fields:
        view: [page, layer, 2, page_len, kv_head, head_dim] over the whole arena, strided over pages.
    """

    def __init__(
        self,
        name: str,
        arena: Arena,
        shape: ModelShape,
        *,
        dtype: torch.dtype,
        page_len: int,
        has_prefixes: bool,
        cost_key: Hashable,
    ) -> None:
        self.arena = arena
        self.page_len = page_len
        self.page_bytes = page_len * shape.kv_bytes_per_token(dtype)
        self.page_class = arena.add_page_class(name, self.page_bytes)
        self.view = self.page_class.view(shape.num_layers, page_len, shape.num_kv_heads, shape.head_dim, dtype)
        self._flat_pages = self.view.flatten(1)
        self.prefixes = PrefixCache(arena, [self.page_class], page_len, cost_key=cost_key) if has_prefixes else None
        self._kept: dict[str, list[Node]] = {}  # by program, the one that has waited longest first

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_len)

    def on_moved(self, callback: Callable[[Mapping[int, int]], None]) -> None:
        """Calls back with {old id: new id} when pages have moved."""
        self.page_class.on_moved(callback)

    # Whether there is room

    def can_take(self, num_pages: int) -> bool:
        """Whether so many pages could be had now."""
        if num_pages <= self.page_class.num_free:
            return True
        return self.arena.can_lease(Need(pages={self.page_class.name: num_pages}))

    def could_ever_take(self, num_pages: int) -> bool:
        return self.arena.could_ever_lease(Need(pages={self.page_class.name: num_pages}))

    def shortfall(self, num_pages: int) -> Shortfall:
        return Shortfall(num_pages * self.page_bytes, self.page_class.name)

    # Prefixes

    def look_up(self, memory: KvMemory, token_ids: Sequence[int]) -> int:
        """Takes up what the prefix cache has of the prompt, instead of what was taken up before.

        Returns:
            How many tokens need not be computed. When `memory.waits` is set, somebody is about to compute more.
        """
        if self.prefixes is None:
            return 0
        match = self.prefixes.match(memory.namespace, token_ids)
        self.prefixes.lock(match.node)
        self._unlock(memory)
        memory.node = match.node
        memory.pages = [page for (page,) in match.pages]
        memory.num_shared = len(memory.pages)
        memory.tail = match if match.tail_len else None
        memory.waits = None if match.is_launched else match
        return match.num_tokens

    def promise(self, memory: KvMemory, token_ids: Sequence[int]) -> None:
        """Says to others that this request computes the rest of its prompt; it waits for nobody from now on."""
        memory.waits = None
        if self.prefixes is not None:
            memory.promise = self.prefixes.promise(memory.namespace, token_ids, memory.owner)

    def launched(self, memory: KvMemory, num_tokens: int) -> None:
        """A step that computes the request's tokens up to there is launched: others may share their whole pages."""
        promise = memory.promise
        if promise is not None and promise.is_open:
            assert self.prefixes is not None
            self.prefixes.launched(promise, num_tokens, [(page,) for page in memory.pages])

    # Pages

    def grow(self, memory: KvMemory, num_pages: int) -> Shortfall | None:
        """Takes pages until the request has so many."""
        taken = self.page_class.take(num_pages - len(memory.pages), memory.owner)
        if isinstance(taken, Shortfall):
            return taken
        memory.pages += taken
        return None

    def shrink(self, memory: KvMemory, num_pages: int) -> None:
        """Gives back what was taken beyond so many and not used yet."""
        self.page_class.free(memory.pages[num_pages:], memory.owner)
        del memory.pages[num_pages:]

    def clear(self, pages: Sequence[int]) -> None:
        """Makes all bytes of the pages finite numbers."""
        self._flat_pages.index_fill_(0, self._index(pages), 0)

    def copy_tail(self, memory: KvMemory) -> None:
        """Copies the shared tail into the request's first own page."""
        assert memory.tail is not None and memory.tail.tail_page is not None
        (source,) = memory.tail.tail_page
        self._flat_pages[memory.pages[memory.num_shared]].copy_(self._flat_pages[source])

    def give_back(self, memory: KvMemory, token_ids: Sequence[int]) -> None:
        """The request is over; `token_ids` are those whose keys and values are computed. Prefixes are kept."""
        pages, memory.pages = memory.pages, []
        num_kept = 0
        if self.prefixes is not None and memory.is_valid:
            entries, ids = [(page,) for page in pages], token_ids[: len(pages) * self.page_len]
            num_kept = self.prefixes.insert(memory.namespace, ids, entries, memory.owner) // self.page_len
        self.page_class.free(pages[max(num_kept, memory.num_shared) :], memory.owner)
        self._forget_prefix(memory)
        if memory.copy is not None:
            memory.copy.release()
            memory.copy = None

    def keep(self, program: str, memory: KvMemory, token_ids: Sequence[int]) -> None:
        """Keeps the whole pages of the ids, which the request has computed, until `let_go`."""
        if self.prefixes is not None:
            self._kept[program] = [*self._kept.pop(program, ()), self.prefixes.hold(memory.namespace, token_ids)]

    def let_go(self, program: str | None) -> bool:
        """See `core.step.Runner.let_go`."""
        found = next(iter(self._kept), None) if program is None else program
        nodes = self._kept.pop(found, []) if found is not None else []
        for node in nodes:
            assert self.prefixes is not None
            self.prefixes.unlock(node)
        return bool(nodes)

    # Parking

    def park(self, memory: KvMemory, num_tokens: int) -> Shortfall | None:
        """Copies the pages of the first `num_tokens` tokens to the host and gives all pages back."""
        used = memory.pages[: self.pages_for(num_tokens)]
        shape = torch.Size((len(used), self._flat_pages.shape[1]))
        copy = self.arena.host.reserve(shape, self._flat_pages.dtype, memory.owner)
        if isinstance(copy, Shortfall):
            return copy
        try:
            for first, pages in self._pieces(used):
                copy.store_rows(first, self._flat_pages.index_select(0, self._index(pages)))
        except BaseException:
            copy.release()
            raise
        self.page_class.free(memory.pages[memory.num_shared :], memory.owner)
        memory.copy, memory.parked_pages, memory.pages = copy, used, []
        self._forget_prefix(memory)
        return None

    def resume(self, memory: KvMemory, token_ids: Sequence[int], num_tokens: int) -> Shortfall | None:
        """The way back. Pages that the prefix cache still holds where they lay are shared again, not copied.

        Args:
            token_ids: of the request, at least one more than the `num_tokens` that are computed.
        """
        assert memory.copy is not None, f"'{memory.owner}' is not parked."
        self._share_again(memory, token_ids[: num_tokens + 1])
        shortfall = self.grow(memory, self.pages_for(num_tokens + 1))
        if shortfall is not None:
            self._forget_prefix(memory)
            memory.pages = []
            return shortfall
        memory.is_valid = False  # until all bytes are back
        shared, num_copied = memory.num_shared, len(memory.parked_pages)
        with self.arena.clock.outside():  # no step: pages that are given back at once may be anybody's in the next one
            for first, pages in self._pieces(memory.pages[shared:num_copied]):
                piece = self._flat_pages.new_empty((len(pages), self._flat_pages.shape[1]))
                memory.copy.load_rows(shared + first, piece)
                self._flat_pages.index_copy_(0, self._index(pages), piece)
            self.clear(memory.pages[num_copied:])
        memory.copy.release()
        memory.copy, memory.parked_pages = None, []
        memory.is_valid = True
        return None

    def _share_again(self, memory: KvMemory, token_ids: Sequence[int]) -> None:
        """Shares what lies where it lay, and locks no more: other pages of the same tokens may have to make room."""
        if self.prefixes is None:
            return
        match = self.prefixes.match(memory.namespace, token_ids, counts=False)
        there = [page for (page,) in match.pages]
        pairs = enumerate(zip(there, memory.parked_pages, strict=False))
        num_same = next((i for i, (a, b) in pairs if a != b), min(len(there), len(memory.parked_pages)))
        match = self.prefixes.match(memory.namespace, token_ids[: num_same * self.page_len + 1], counts=False)
        self.prefixes.lock(match.node)
        memory.node = match.node
        memory.pages = there[:num_same]
        memory.num_shared = num_same

    def _forget_prefix(self, memory: KvMemory) -> None:
        if memory.promise is not None:
            assert self.prefixes is not None
            self.prefixes.break_promise(memory.promise, is_valid=memory.is_valid)
        self._unlock(memory)
        memory.promise = memory.node = memory.tail = memory.waits = None
        memory.num_shared = 0

    def _unlock(self, memory: KvMemory) -> None:
        if memory.node is not None:
            assert self.prefixes is not None
            self.prefixes.unlock(memory.node)

    def _pieces(self, pages: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        """Pages that are copied at once, and where they begin: the memory for that is beside the arena."""
        at_once = max(MOVED_AT_ONCE_BYTES // self.page_bytes, 1)
        return ((first, pages[first : first + at_once]) for first in range(0, len(pages), at_once))

    def _index(self, pages: Sequence[int]) -> Tensor:
        return ints_to_device(pages, self.view.device)
