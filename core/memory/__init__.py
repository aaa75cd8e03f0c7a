"""The memory of one device: an arena of spans, leases and pages; prefix caches; the host tier; the ledger."""

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
