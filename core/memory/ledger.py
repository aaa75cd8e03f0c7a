"""Who owns every byte of an arena, and whether the books are right. Reads the arena; changes nothing."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .arena import Arena


class Ledger:
    """A snapshot: `owners[owner][kind]` is bytes; kinds are `general`, `host` and the names of page classes.

    A page with several owners counts for each of them.
    """

    def __init__(self, arena: "Arena") -> None:
        self._arena = arena
        self.owners: dict[str, Counter[str]] = defaultdict(Counter)
        for lease in arena.leases.values():
            self.owners[lease.owner]["retiring" if lease.is_released else "general"] += lease.nbytes
        for page_class in arena.page_classes.values():
            for names in page_class.held.values():
                for name in names:
                    self.owners[name][page_class.name] += page_class.page_bytes
        for copy in arena.host.copies.values():
            self.owners[copy.owner]["host"] += copy.nbytes

    def check(self) -> None:
        """Asserts that no byte is lost or owned twice, and that tenants hold what they think they hold."""
        arena = self._arena
        end = 0
        for segment in arena.segments():
            assert segment.start >= end, f"Bytes {segment.start} to {end} are owned twice."
            assert segment.start == end, f"Bytes {end} to {segment.start} are lost."
            end = segment.end
        assert end == arena.nbytes, f"Bytes {end} to {arena.nbytes} are lost or too many."
        for page_class in arena.page_classes.values():
            page_class.check()
        for tenant in arena.tenants:
            tenant.check()
        arena.host.check()
