"""Entries of a prefix tree: one page per layer group, held together, copied to the host and brought back together.

Knows pages and copies; nothing of token ids, nor of which entry goes first.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from ..step import Shortfall
from .host import HostCopy, HostTier
from .pages import PageClass, take_together

ABSENT = -1
"""In the place of a page id: the group keeps none there."""
Pages = tuple[int, ...]
"""A *warm* entry: one page id per layer group."""
Copies = tuple[HostCopy | None, ...]
"""A *cold* entry: one host copy per layer group."""
Entry = Pages | Copies


class EntryStore:
    """Keeps the references of one owner to the pages and copies of its entries.

    Fields:
        nbytes: of one warm entry.
    """

    def __init__(self, groups: Sequence[PageClass], host: HostTier, owner: str) -> None:
        self.groups = tuple(groups)
        self.owner = owner
        self.nbytes = sum(group.page_bytes for group in self.groups)
        self._host = host

    def hold(self, entries: Sequence[Pages]) -> None:
        """Takes a reference to each page."""
        for group, page_class in enumerate(self.groups):
            page_class.retain([entry[group] for entry in entries if entry[group] != ABSENT], self.owner)

    def drop(self, warm: Iterable[Entry]) -> None:
        """Gives the references to pages back. No step in flight may touch the pages."""
        entries = list(warm)
        for group, page_class in enumerate(self.groups):
            pages = [cast(int, entry[group]) for entry in entries]
            page_class.free([page for page in pages if page != ABSENT], self.owner, are_quiet=True)

    def release(self, cold: Iterable[Entry]) -> None:
        """Gives the bytes of host copies back."""
        for entry in cold:
            for copy in entry:
                if isinstance(copy, HostCopy):
                    copy.release()

    def store(self, entry: Pages) -> Copies | None:
        """Host copies of the pages, which are kept; None when there is no room."""
        if self._host.nbytes == 0:
            return None
        copies: list[HostCopy | None] = []
        for group, page in zip(self.groups, entry, strict=True):
            copy = None if page == ABSENT else self._host.store(group.bytes_of(page), self.owner)
            if isinstance(copy, Shortfall):
                self.release([tuple(copies)])
                return None
            copies.append(copy)
        return tuple(copies)

    def load(self, copies: Copies) -> Pages | None:
        """Pages with what was copied; the copies are released. None, and they stay, when a page cannot be had."""
        wanted = [group for group, copy in zip(self.groups, copies, strict=True) if copy is not None]
        taken = take_together(wanted, 1, self.owner)
        if isinstance(taken, Shortfall):
            return None
        pages = iter(taken)
        entry = tuple(ABSENT if copy is None else next(pages)[0] for copy in copies)
        for group, copy, page in zip(self.groups, copies, entry, strict=True):
            if copy is not None:
                copy.load_into(group.bytes_of(page))
        self.release([copies])
        return entry

    def add_to(self, counts: list[int], entries: Sequence[Entry], sign: int = 1) -> None:
        """Counts the pages of warm entries, by group."""
        for group, pages in enumerate(zip(*entries, strict=True)):
            counts[group] += sign * (len(pages) - pages.count(ABSENT))

    def check(self, warm: Sequence[Entry], cold: Sequence[Entry]) -> None:
        """Asserts that the owner holds exactly these pages and copies."""
        for group, page_class in enumerate(self.groups):
            named = sorted(cast(int, entry[group]) for entry in warm if entry[group] != ABSENT)
            held = sorted(page for page, names in page_class.held.items() for name in names if name == self.owner)
            assert named == held, f"'{self.owner}' names {len(named)} pages of '{page_class.name}', holds {len(held)}"
        num_named = sum(copy is not None for copies in cold for copy in copies)
        num_held = sum(copy.owner == self.owner for copy in self._host.copies.values())
        assert num_named == num_held, f"'{self.owner}' names {num_named} host copies, holds {num_held}"
