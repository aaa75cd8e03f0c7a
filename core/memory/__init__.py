"""The memory of one device: who may use which of its bytes, and what goes when there are not enough.

    arena.py      what others talk to: leases, shared leases, page classes
    lease.py      a right to a run of bytes              pages.py      pages of one class, counted by reference
    radix.py      the prefix cache: what a prompt need not compute; promises.py: what somebody is computing now
    host.py       the host tier                          ledger.py     who owns every byte, and is it true

Beneath them: room.py makes room, on layout.py's snapshots of what is where, by evict.py's prices; extents.py keeps free
ranges, spans.py free pages; page_tree.py is a radix tree (tree.py) whose entries (entries.py) are pages or host copies.
"""

from .arena import Arena
from .entries import ABSENT, Pages
from .host import HostCopy, HostTier
from .lease import Lease, SharedLease
from .ledger import Ledger
from .pages import PageClass
from .promises import Promise
from .radix import Match, PrefixCache
from .room import Need
from .tree import Node

__all__ = [
    "ABSENT",
    "Arena",
    "HostCopy",
    "HostTier",
    "Lease",
    "Ledger",
    "Match",
    "Need",
    "Node",
    "PageClass",
    "Pages",
    "PrefixCache",
    "Promise",
    "SharedLease",
]
