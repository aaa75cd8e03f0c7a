"""Who owns every byte of an arena, and whether the books are right. Reads them; changes nothing."""

from collections import Counter, defaultdict

from .host import HostTier
from .lease import Lease
from .pages import PageClass
from .room import Room


class Ledger:
    """The books at one moment.

    Fields:
        owners: bytes by owner and kind: `general`, `retiring`, `host`, or a page class. A page with two owners counts
            for both.
        kinds: bytes of the arena by kind; `free` is what nobody has, `unused` what is lost to rounding, straddling
            pages and free pages in the spans of a class. They sum up to the arena.
    """

    def __init__(self, room: Room, host: HostTier) -> None:
        self._room = room
        self._host = host
        self.owners: dict[str, Counter[str]] = defaultdict(Counter)
        self.kinds = count_kinds(room)
        for lease in room.leases.values():
            self.owners[lease.owner]["retiring" if lease.is_released else "general"] += lease.nbytes
        for page_class in room.page_classes.values():
            self._enter_owners(page_class)
        for copy in host.copies.values():
            self.owners[copy.owner]["host"] += copy.nbytes

    def _enter_owners(self, page_class: PageClass) -> None:
        for names in page_class.held.values():
            for name in names:
                self.owners[name][page_class.name] += page_class.page_bytes

    def check(self) -> None:
        """Asserts that no byte is lost or owned twice, and that everybody holds what he thinks he holds."""
        end = 0
        for segment in self._room.segments():
            assert segment.start >= end, f"Bytes {segment.start} to {end} are owned twice."
            assert segment.start == end, f"Bytes {end} to {segment.start} are lost."
            end = segment.end
        assert end == self._room.nbytes, f"Bytes {end} to {self._room.nbytes} are lost or too many."
        for page_class in self._room.page_classes.values():
            page_class.check()
        for tenant in self._room.tenants:
            tenant.check()
        self._host.check()


def count_kinds(room: Room) -> Counter[str]:
    """Bytes of the arena by kind, as in `Ledger.kinds`; its cost does not grow with the number of pages held."""
    kinds: Counter[str] = Counter()
    for segment in room.segments():
        nbytes, holder = segment.end - segment.start, segment.holder
        if isinstance(holder, Lease):
            kinds["retiring" if holder.is_released else "general"] += holder.nbytes
            kinds["unused"] += nbytes - holder.nbytes
        else:
            kinds["free" if holder is None else "unused"] += nbytes
    for page_class in room.page_classes.values():
        held, retiring = len(page_class.held) * page_class.page_bytes, page_class.num_retiring * page_class.page_bytes
        kinds[page_class.name] += held
        kinds["retiring"] += retiring
        kinds["unused"] -= held + retiring
    return kinds
