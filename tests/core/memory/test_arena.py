"""General and shared leases: alignment, eviction by worth, what can and could ever be leased."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hemiola.core.device import InFlight
from hemiola.core.errors import CannotFit
from hemiola.core.memory import Arena, Lease, Need
from hemiola.core.memory.lease import SharedLease
from hemiola.core.step import Shortfall, Slot, Work


def leased(lease: Lease | Shortfall) -> Lease:
    assert isinstance(lease, Lease)
    return lease


def share(arena: Arena, key: str, nbytes: int, seconds: float) -> None:
    """A shared lease that nobody locks; the arena's cost model must take rows for seconds."""
    leased(arena.share(key, nbytes, Work(rows=int(seconds)), "any")).unlock()


def has(arena: Arena, key: str) -> bool:
    lease = arena.find(key)
    if lease is not None:
        lease.unlock()
    return lease is not None


def rows_are_seconds(_: object, work: Work) -> float:
    return float(work.rows)


# Page classes


def test_an_arena_too_small_for_its_pages_says_what_would_fit() -> None:
    """It spoke of spans, and of the pages that would fit instead, which nobody can ask for."""
    words = r"^The smallest KV cache of 'kv' needs .* Raise the engine's 'memory_bytes' to 2 MiB or more\.$"
    with pytest.raises(CannotFit, match=words) as raised:
        Arena(1 << 20).add_page_class("kv", 15000)
    assert (raised.value.bytes_needed, raised.value.bytes_available) == (8 * 135168, 1 << 20)
    assert Arena(8 * 135168).add_page_class("kv", 15000).num_pages_possible >= 8 * 8
    page_class = Arena(2 << 20).add_page_class("kv", 15000)
    assert page_class.num_pages_possible >= 8 * 8
    assert all(len(page_class.ids_in(i)) >= 8 for i in range(8))


def test_spans_grow_with_the_page_classes_until_pages_are_held() -> None:
    arena = Arena(1 << 20)
    small = arena.add_page_class("small", 1000)
    before = arena.span_bytes
    pages = small.take(5, "r")
    assert isinstance(pages, list)
    small.free(pages, "r")
    large = arena.add_page_class("large", 3000)
    assert arena.span_bytes > before
    assert isinstance(small.take(100, "r"), list) and isinstance(large.take(100, "r"), list)
    arena.ledger.check()
    with pytest.raises(CannotFit, match="name 'huge' before them"):
        arena.add_page_class("huge", 9000)
    with pytest.raises(ValueError, match="'small' already"):
        arena.add_page_class("small", 10)


# Leases


def test_a_lease_is_an_aligned_view_that_is_made_once() -> None:
    arena = Arena(1 << 16)
    first, second = leased(arena.lease(1000, "a")), leased(arena.lease(1000, "b"))
    view = second.tensor((10, 25), torch.float32)
    assert view.is_contiguous() and view.data_ptr() % 256 == 0 and first.start % 256 == second.start % 256 == 0
    assert second.tensor((10, 25), torch.float32) is view
    assert second.tensor((500,), torch.bfloat16).data_ptr() == view.data_ptr()
    with pytest.raises(ValueError, match="is 1004 bytes; 'b' leased 1000"):
        second.tensor((251,), torch.float32)
    second.release()
    second.release()
    with pytest.raises(ValueError, match="is released"):
        second.tensor((10, 25), torch.float32)
    with pytest.raises(ValueError, match="not a shared one"):
        first.lock()


def test_a_lease_remembers_its_last_writer() -> None:
    lease = leased(Arena(1 << 16).lease(1000, "a"))
    lease.written(Slot("language", 1.0, 7, 0.0))
    lease.written(Slot("media", 0.5, 3, 0.0))
    assert lease.writer == ("media", 3)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 9000), min_size=1, max_size=3)), max_size=40))
def test_leases_never_overlap_and_come_all_or_none(operations: list[tuple[bool, list[int]]]) -> None:
    arena = Arena(1 << 15)
    held: list[Lease] = []
    for is_release, sizes in operations:
        if is_release and held:
            held.pop(sizes[0] % len(held)).release()
        else:
            before = arena.ledger.kinds["general"]
            can = arena.can_lease(Need(tuple(sizes)))
            found = arena.lease_all(sizes, "r")
            assert isinstance(found, list) == can
            if isinstance(found, list):
                assert [lease.nbytes for lease in found] == sizes
                held += found
            else:
                assert arena.ledger.kinds["general"] == before
        taken = sorted((lease.start, lease.start + lease.nbytes) for lease in held)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(taken))
        assert not taken or taken[-1][1] <= arena.nbytes
        arena.ledger.check()


def test_released_bytes_retire_and_the_version_tells_when_they_are_free() -> None:
    clock = InFlight()
    arena = Arena(1 << 14, clock=clock)
    lease = leased(arena.lease(1 << 14, "a"))
    clock.launched("media", 1)
    lease.release()
    version = arena.version
    assert arena.lease(256, "b") == Shortfall(256)
    assert arena.ledger.kinds["retiring"] == 1 << 14
    arena.ledger.check()
    clock.completed("media", 1)
    assert arena.version > version
    leased(arena.lease(1 << 14, "b"))


# Shared leases and eviction


def test_what_no_step_has_seen_is_free_at_once_whatever_is_in_flight() -> None:
    clock = InFlight()
    arena = Arena(1 << 14, clock=clock)
    clock.launched("media", 1)
    lease = arena.lease(1 << 14, "whole")
    assert isinstance(lease, Lease)
    arena.put_back(lease)
    again = arena.lease(1 << 14, "whole")
    assert isinstance(again, Lease)
    again.written(Slot("media", 1.0, 1, 0.0))
    with pytest.raises(AssertionError, match="written"):
        arena.put_back(again)


def test_a_shared_lease_has_the_name_of_its_kind_in_the_ledger() -> None:
    arena = Arena(1 << 14)
    arena.share("key", 256, Work(), "cost", owner="graph:m")
    [owner] = arena.ledger.owners
    assert owner.startswith("graph:m:")


def test_a_shared_lease_is_found_until_it_is_evicted_and_never_evicted_while_locked() -> None:
    clock = InFlight()
    arena = Arena(1 << 14, clock=clock)
    lease = leased(arena.share("k", 1 << 13, Work(new_tokens=1), "any"))
    assert arena.find("k") is lease
    lease.unlock()
    assert isinstance(arena.lease(1 << 14, "r"), Shortfall)
    clock.launched("media", 1)
    lease.unlock()
    assert isinstance(arena.lease(1 << 14, "r"), Shortfall), "a step in flight may still read it"
    clock.completed("media", 1)
    leased(arena.lease(1 << 14, "r"))
    assert arena.find("k") is None
    assert lease.is_released


def test_a_shared_lease_that_is_released_is_forgotten_at_once_and_free_with_the_last_lock() -> None:
    arena = Arena(1 << 14)
    lease = leased(arena.share("k", 1 << 14, Work(), "any"))
    with pytest.raises(ValueError, match="under 'k' already"):
        arena.share("k", 1, Work(), "any")
    lease.lock()
    lease.release()
    assert arena.find("k") is None
    lease.unlock()
    assert isinstance(arena.lease(256, "r"), Shortfall)
    lease.unlock()
    leased(arena.lease(1 << 14, "r"))


def test_the_least_seconds_per_byte_go_first() -> None:
    arena = Arena(6 * 1024)
    arena.seconds = rows_are_seconds
    share(arena, "small and dear", 1024, 50)
    share(arena, "large and dear", 2048, 60)
    share(arena, "small and cheap", 1024, 20)
    share(arena, "middling", 2048, 44)
    gone = []
    for nbytes in (1024, 2048, 2048, 1024):
        leased(arena.lease(nbytes, "r"))
        gone += [key for key in ("small and dear", "large and dear", "small and cheap", "middling") if key not in gone
                 and not has(arena, key)]  # fmt: skip
    assert gone == ["small and cheap", "middling", "large and dear", "small and dear"]


def test_what_was_dear_but_is_never_used_goes_at_last() -> None:
    """Prices start from a floor that rises with each eviction."""
    arena = Arena(4 * 1024)
    arena.seconds = rows_are_seconds
    share(arena, "dear once", 1024, 50)
    for i in range(40):
        share(arena, f"cheap {i}", 1024, 10)
    assert not has(arena, "dear once")


def test_of_equal_worth_the_least_recently_used_goes_first() -> None:
    arena = Arena(3 * 1024)
    arena.seconds = rows_are_seconds
    for key in "abc":
        share(arena, key, 1024, 10)
    share(arena, "d", 1024, 10)
    survivors = [key for key in "abc" if has(arena, key)]
    share(arena, "e", 1024, 10)
    assert len(survivors) == 2
    assert all(has(arena, key) for key in survivors), "they were used after d was made"


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_cost_model_that_talks_nonsense_does_not_stop_eviction(seconds: float) -> None:
    arena = Arena(4 * 1024)
    arena.seconds = lambda _, work: seconds
    for key in "abcdefgh":
        share(arena, key, 1024, 1)
    leased(arena.lease(4 * 1024, "r"))


# Asking


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 30_000), max_size=4), st.integers(0, 200), st.integers(0, 120), st.booleans())
def test_what_could_ever_be_leased_is_what_an_empty_arena_gives(
    sizes: list[int], num_small: int, num_large: int, pages_first: bool
) -> None:
    arena = Arena(80_000)
    small, large = arena.add_page_class("small", 300), arena.add_page_class("large", 700)
    need = Need(tuple(sizes), {"small": num_small, "large": num_large})
    can = arena.could_ever_lease(need)
    assert can == arena.can_lease(need)
    if can:
        takes = [lambda: small.take(num_small, "r"), lambda: large.take(num_large, "r")]
        leases = [lambda: arena.lease_all(sizes, "r")]
        for take in takes + leases if pages_first else leases + takes:
            assert not isinstance(take(), Shortfall)
    arena.ledger.check()


def test_asking_changes_nothing() -> None:
    arena = Arena(80_000)
    arena.add_page_class("kv", 700).take(20, "r")
    share(arena, "k", 20_000, 1)
    before = arena.ledger.owners
    assert arena.can_lease(Need((50_000,), {"kv": 4}))
    assert not arena.can_lease(Need((90_000,)))
    assert arena.ledger.owners == before
    assert has(arena, "k")


def test_unlocking_more_often_than_locking_is_our_mistake() -> None:
    lease = leased(Arena(1 << 14).share("k", 100, Work(), "any"))
    assert isinstance(lease, SharedLease)
    lease.unlock()
    with pytest.raises(AssertionError, match="more often"):
        lease.unlock()
