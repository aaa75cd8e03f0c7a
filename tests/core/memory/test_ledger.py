"""The ledger names every owner, and its check notices each kind of mistake."""

import pytest
import torch

from hemiola.core.device import InFlight
from hemiola.core.memory import Arena, HostCopy, Lease, PageClass, PrefixCache
from hemiola.core.step import Work


def some_arena() -> tuple[Arena, PageClass, PrefixCache]:
    arena = Arena(50_000, host_bytes=5000)
    page_class = arena.add_page_class("kv", 500)
    cache = PrefixCache(arena, [page_class], 4)
    pages = page_class.take(5, "r1")
    assert isinstance(pages, list)
    cache.insert("x", range(8), [(page,) for page in pages[:2]], "r1")
    return arena, page_class, cache


def test_it_says_who_owns_what() -> None:
    clock = InFlight()
    arena = Arena(50_000, host_bytes=5000, clock=clock)
    page_class = arena.add_page_class("kv", 500)
    pages = page_class.take(5, "r1")
    assert isinstance(pages, list)
    page_class.retain(pages[:1], "r2")
    leases = arena.lease_all((1000, 2000, 3000), "r2")
    assert isinstance(leases, list)
    arena.share("k", 700, Work(), "any")
    arena.host.store(torch.zeros(300, dtype=torch.uint8), "r3")
    clock.launched("language", 1)
    page_class.free(pages[4:], "r1")
    leases[0].release()
    owners = {owner: dict(kinds) for owner, kinds in arena.ledger.owners.items()}
    assert {kind for owner, kinds in owners.items() if owner.startswith("condition:") for kind in kinds} == {"general"}
    assert owners["r1"] == {"kv": 2000}
    assert owners["r2"] == {"kv": 500, "retiring": 1000, "general": 5000}
    assert owners["r3"] == {"host": 300}
    kinds = arena.ledger.kinds
    assert (kinds["kv"], kinds["general"], kinds["retiring"]) == (2000, 5700, 1500)
    assert kinds.total() == arena.nbytes
    arena.ledger.check()


def test_a_lost_lease_is_noticed() -> None:
    arena, _, _ = some_arena()
    lease = arena.lease(1000, "r")
    assert isinstance(lease, Lease)
    del arena._room.leases[lease.start]
    with pytest.raises(AssertionError, match="are lost"):
        arena.ledger.check()


def test_bytes_that_two_own_are_noticed() -> None:
    arena, _, _ = some_arena()
    lease = arena.lease(1000, "r")
    assert isinstance(lease, Lease)
    arena._room.leases[lease.start + 256] = Lease(arena.buffer, lease.start + 256, 256, "thief", lambda _: None)
    with pytest.raises(AssertionError, match="owned twice"):
        arena.ledger.check()


def test_a_page_that_is_free_and_held_is_noticed() -> None:
    arena, page_class, _ = some_arena()
    page_class._free.put([next(iter(page_class.held))])
    with pytest.raises(AssertionError, match="of 9 pages"):
        arena.ledger.check()


def test_a_page_that_the_cache_names_but_does_not_hold_is_noticed() -> None:
    arena, page_class, cache = some_arena()
    page_class.free([cache.match("x", range(9)).pages[0][0]], cache.owner)
    with pytest.raises(AssertionError, match="names 2 pages of 'kv', holds 1"):
        arena.ledger.check()


def test_a_lost_host_copy_is_noticed() -> None:
    arena, _, _ = some_arena()
    copy = arena.host.store(torch.zeros(300), "r")
    assert isinstance(copy, HostCopy)
    arena.ledger.check()
    del arena.host.copies[copy.start]
    with pytest.raises(AssertionError, match="Host bytes"):
        arena.ledger.check()
