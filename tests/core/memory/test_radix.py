"""The prefix cache against a dict of prefixes: matches, promises, splits, eviction, pinning, statistics."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hemiola.core.device import InFlight
from hemiola.core.memory import ABSENT, Arena, HostCopy, Lease, PrefixCache
from hemiola.core.step import Shortfall, Work

Pages = list[tuple[int, ...]]


def make_cache(
    nbytes: int = 1 << 17, *, num_groups: int = 1, host_bytes: int = 0, windows: Sequence[int | None] | None = None
) -> tuple[Arena, PrefixCache]:
    arena = Arena(nbytes, host_bytes=host_bytes, clock=InFlight())
    groups = [arena.add_page_class(f"kv{i}", 128 * (i + 1)) for i in range(num_groups)]
    return arena, PrefixCache(arena, groups, 4, windows=windows)


def take(cache: PrefixCache, count: int, owner: str = "r") -> Pages:
    pages = cache.take(count, owner)
    assert isinstance(pages, list)
    return pages


def insert(cache: PrefixCache, token_ids: Sequence[int], namespace: str = "x", owner: str = "r") -> Pages:
    """Computes all whole pages of the ids and hands them over, as a request that matched nothing would."""
    pages = take(cache, len(token_ids) // 4, owner)
    for group, page_class in enumerate(cache.groups):
        for i, page in enumerate(pages):
            page_class.bytes_of(page[group]).fill_(content(token_ids[: 4 * i + 4], group))
    cache.insert(namespace, token_ids, pages, owner)
    return pages


def content(token_ids: Sequence[int], group: int) -> int:
    return hash((tuple(token_ids), group)) % 251


def num_matched(cache: PrefixCache, token_ids: Sequence[int], namespace: str = "x") -> int:
    """Tokens matched, all of them if the ids were cached: one more is asked for."""
    return cache.match(namespace, [*token_ids, 99]).num_tokens


# Matching

tokens = st.lists(st.integers(0, 2), max_size=24)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("xy"), tokens), max_size=30))
def test_the_tree_equals_a_dict_of_prefixes(operations: list[tuple[bool, str, list[int]]]) -> None:
    arena, cache = make_cache()
    known: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
    for is_insert, namespace, ids in operations:
        if is_insert:
            for i, page in enumerate(insert(cache, ids, namespace)):
                known.setdefault((namespace, tuple(ids[: 4 * i + 4])), page)
        else:
            match = cache.match(namespace, ids)
            wanted = tuple(ids[:-1])
            num_full = 0
            while (namespace, wanted[: num_full + 4]) in known and num_full + 4 <= len(wanted):
                num_full += 4
            assert match.pages == [known[namespace, wanted[: i + 4]] for i in range(0, num_full, 4)]
            tails = [
                (agreed(prefix[num_full:], wanted[num_full:]), page)
                for (its_namespace, prefix), page in known.items()
                if its_namespace == namespace and len(prefix) == num_full + 4 and prefix[:num_full] == wanted[:num_full]
            ]
            longest = max((length for length, _ in tails), default=0)
            assert match.tail_len == longest
            assert match.num_tokens == num_full + longest
            assert match.tail_page in [page for length, page in tails if length == longest > 0] or longest == 0
        assert cache.num_tokens == 4 * len(known)
        arena.ledger.check()


def agreed(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_a_match_leaves_at_least_one_token_to_compute() -> None:
    _, cache = make_cache()
    pages = insert(cache, range(8))
    match = cache.match("x", range(8))
    assert (match.pages, match.tail_page, match.tail_len, match.num_tokens) == (pages[:1], pages[1], 3, 7)
    assert cache.match("x", range(5)).num_tokens == 4
    assert cache.match("x", [0]).num_tokens == cache.match("x", []).num_tokens == 0
    assert cache.match("y", range(8)).num_tokens == 0


def test_hits_are_counted_once_per_request() -> None:
    _, cache = make_cache()
    insert(cache, range(8))
    cache.match("x", range(20))
    cache.match("x", range(20), counts=False)
    cache.match("x", [7, 7])
    assert (cache.stats.num_queries, cache.stats.num_query_tokens, cache.stats.num_hit_tokens) == (2, 22, 8)


# Promises


def test_equal_prompts_wait_for_the_first_and_then_share_its_pages() -> None:
    arena, cache = make_cache()
    prompt = list(range(18))
    first = cache.match("x", prompt)
    assert first.is_launched
    promise = cache.promise("x", prompt, "r1")
    second = cache.match("x", prompt)
    other_namespace, other_prompt = cache.match("y", prompt), cache.match("x", [5, *prompt])
    assert not second.is_launched
    assert other_namespace.is_launched and other_prompt.is_launched
    pages = take(cache, 5, "r1")
    cache.launched(promise, 10, pages)
    assert not second.is_launched
    branch = cache.match("x", [*prompt[:8], 50, 51, 52, 53, 54])
    assert branch.is_launched and branch.pages == pages[:2]
    cache.launched(promise, 18, pages)
    assert second.is_launched and not promise.is_open
    assert cache.match("x", prompt).pages == pages[:4]
    cache.insert("x", prompt, pages, "r1")
    cache.groups[0].free([pages[4][0]], "r1")
    cache.break_promise(promise)
    assert cache.match("x", prompt).pages == pages[:4]
    arena.ledger.check()
    assert set(arena.ledger.owners) == {cache.owner}


def test_prompts_and_namespaces_of_equal_hash_do_not_wait_for_each_other() -> None:
    assert hash(-1) == hash(-2)
    _, cache = make_cache()
    cache.promise(-1, [-1, 5, 6, 7], "r1")
    assert not cache.match(-1, [-1, 5, 6, 7, 8]).is_launched
    assert cache.match(-1, [-2, 5, 6, 7, 8]).is_launched
    assert cache.match(-2, [-1, 5, 6, 7, 8]).is_launched


def test_a_broken_promise_leaves_what_was_launched_and_lets_the_others_compute() -> None:
    arena, cache = make_cache()
    prompt = list(range(20))
    promise = cache.promise("x", prompt, "r1")
    waiting = cache.match("x", prompt)
    pages = take(cache, 5, "r1")
    cache.launched(promise, 9, pages)
    cache.break_promise(promise)
    cache.break_promise(promise)
    cache.groups[0].free([page[0] for page in pages], "r1")
    assert waiting.is_launched
    again = cache.match("x", prompt)
    assert again.is_launched and again.pages == pages[:2]
    cache.flush()
    assert set(arena.ledger.owners) == set()


def test_pages_that_may_hold_nonsense_are_forgotten_with_all_that_was_computed_after_them() -> None:
    arena, cache = make_cache()
    good = insert(cache, range(8))
    promise = cache.promise("x", range(20), "r1")
    own = take(cache, 3, "r1")
    cache.launched(promise, 20, good + own)
    dependent = cache.match("x", [*range(16), 70, 71, 72, 73, 74])
    cache.lock(dependent.node)
    cache.insert("x", [*range(16), 70, 71, 72, 73], [*dependent.pages, *take(cache, 1, "r2")], "r2")
    assert cache.is_valid(dependent.node)
    cache.break_promise(promise, is_valid=False)
    cache.groups[0].free([page[0] for page in own], "r1")
    assert not cache.is_valid(dependent.node)
    assert num_matched(cache, range(20)) == 8
    arena.ledger.check()
    assert cache.groups[0].owners_of(own[0][0]) == [cache.owner], "the dependent still reads it"
    cache.unlock(dependent.node)
    assert len(cache.groups[0].held) == 2
    arena.ledger.check()


def test_of_two_that_computed_the_same_one_copy_stays() -> None:
    arena, cache = make_cache()
    promises = [cache.promise("x", range(8), owner) for owner in ("r1", "r2")]
    pages = [take(cache, 2, owner) for owner in ("r1", "r2")]
    for promise, its_pages, owner in zip(promises, pages, ("r1", "r2"), strict=True):
        cache.launched(promise, 8, its_pages)
        cache.insert("x", range(8), its_pages, owner)
        cache.break_promise(promise)
    assert cache.match("x", range(9)).pages == pages[0]
    assert len(cache.groups[0].held) == 2
    arena.ledger.check()


# Locks, pins and eviction


def test_a_locked_prefix_outlives_any_pressure_and_the_rest_goes() -> None:
    arena, cache = make_cache(16 * 1024)
    insert(cache, range(40))
    match = cache.match("x", [*range(17), 99])
    cache.lock(match.node)
    lease = arena.lease(12 * 1024, "picture")
    assert isinstance(lease, Lease)
    cache.groups[0].take(cache.groups[0].num_free, "r")
    assert isinstance(cache.take(1, "r"), list), "pages 6 to 10 can go"
    while not isinstance(cache.take(1, "r"), Shortfall):
        pass
    assert num_matched(cache, range(40)) == 17 + 3, "the tail page is locked too"
    cache.unlock(match.node)
    assert isinstance(cache.take(5, "r"), list)
    assert cache.num_tokens == 0
    arena.ledger.check()


def test_a_lock_holds_until_the_steps_in_flight_are_complete() -> None:
    arena, cache = make_cache(16 * 1024)
    insert(cache, range(8))
    match = cache.match("x", range(9))
    cache.lock(match.node)
    arena.clock.launched("language", 1)
    cache.unlock(match.node)
    version = arena.version
    assert isinstance(arena.lease(arena.nbytes, "all"), Shortfall)
    assert num_matched(cache, range(8)) == 8
    arena.clock.completed("language", 1)
    assert arena.version > version
    assert isinstance(arena.lease(arena.nbytes, "all"), Lease)


def test_a_lock_survives_that_its_edge_is_split() -> None:
    arena, cache = make_cache()
    insert(cache, range(40))
    match = cache.match("x", [*range(40), 99])
    cache.lock(match.node)
    for length in (5, 9, 21):
        cache.match("x", [*range(length), 99])
    cache.flush()
    assert len(match.pages) == 10
    cache.unlock(match.node)
    cache.flush()
    assert cache.num_tokens == 0
    arena.ledger.check()


def test_leaves_go_first_from_their_end_and_the_least_recently_used_of_equal_worth() -> None:
    arena, cache = make_cache()
    arena.seconds = lambda _, work: float(work.new_tokens)
    insert(cache, [*range(8), 10, 11, 12, 13])
    insert(cache, [*range(8), 20, 21, 22, 23])
    num_matched(cache, [*range(8), 10, 11, 12, 13])
    evict(cache)
    assert num_matched(cache, [*range(8), 20, 21, 22, 23]) == 8
    evict(cache)
    assert num_matched(cache, [*range(8), 10, 11, 12, 13]) == 8
    evict(cache)
    assert num_matched(cache, range(8)) == 4


def test_the_prefix_that_was_cheapest_to_compute_goes_first() -> None:
    arena, cache = make_cache()
    arena.seconds = lambda _, work: float(work.attended_pairs)
    insert(cache, range(40))
    insert(cache, range(100, 108))
    insert(cache, range(200, 220))
    for start, left in ((100, 4), (100, 0), (200, 16), (200, 12)):
        evict(cache)
        assert num_matched(cache, range(start, start + 20)) == left
    assert num_matched(cache, range(40)) == 40


def evict(cache: PrefixCache) -> None:
    assert cache._tree.evict(cache.groups[0])


def test_pages_and_conditions_compete_by_seconds_per_byte() -> None:
    for condition_seconds, is_kept in ((1, False), (1000, True)):
        arena, cache = make_cache(16 * 1024)
        arena.seconds = lambda key, work: float(work.new_tokens)
        lease = arena.share("condition", 8 * 1024, Work(new_tokens=condition_seconds), "encode")
        assert isinstance(lease, Lease)
        lease.unlock()
        insert(cache, range(4 * 40))
        while cache.num_tokens == 160 and (kept := arena.find("condition")) is not None:
            kept.unlock()
            assert isinstance(cache.take(1, "r"), list)
        kept = arena.find("condition")
        assert (kept is not None) == is_kept
        arena.ledger.check()


def test_a_pinned_prefix_stays_also_what_comes_later() -> None:
    arena, cache = make_cache()
    assert cache.pin("x", range(12)) == 0
    insert(cache, range(8))
    cache.flush()
    assert num_matched(cache, range(12)) == 8
    insert(cache, range(16))
    assert cache.pin("x", range(12)) == 12
    cache.flush()
    assert num_matched(cache, range(16)) == 12
    cache.unpin("x", range(12))
    cache.flush()
    assert cache.num_tokens == 0
    arena.ledger.check()


# Host copies


def test_what_was_evicted_comes_back_from_the_host_bit_equal() -> None:
    arena, cache = make_cache(24 * 1024, num_groups=2, host_bytes=8 * 1024)
    ids = list(range(40))
    insert(cache, ids)
    lease = arena.lease(arena.nbytes, "picture")
    assert isinstance(lease, Lease)
    lease.tensor((arena.nbytes,), torch.uint8).fill_(255)
    assert (cache.num_tokens, cache.num_host_tokens) == (0, 40)
    assert num_matched(cache, ids) == 0, "no room to bring it back to"
    lease.release()
    match = cache.match("x", [*ids[:26], 99])
    assert match.num_tokens == 26
    for group, page_class in enumerate(cache.groups):
        for i, page in enumerate([*match.pages, match.tail_page]):
            assert page is not None
            assert bool((page_class.bytes_of(page[group]) == content(ids[: 4 * i + 4], group)).all())
    assert (cache.num_tokens, cache.num_host_tokens, cache.num_restored_tokens) == (28, 12, 28)
    arena.ledger.check()
    cache.flush()
    assert set(arena.ledger.owners) == set()


def test_parked_states_displace_copies_of_the_cache_from_the_host() -> None:
    arena, cache = make_cache(16 * 1024, host_bytes=2 * 1024)
    insert(cache, range(32))
    picture = arena.lease(arena.nbytes, "picture")
    assert isinstance(picture, Lease)
    assert cache.num_host_tokens == 32
    assert isinstance(arena.host.store(torch.zeros(1024, dtype=torch.uint8), "parked"), HostCopy)
    assert cache.num_host_tokens == 16
    picture.release()
    assert num_matched(cache, range(32)) == 16
    arena.ledger.check()


def test_a_request_that_computed_what_lies_on_the_host_replaces_the_copies() -> None:
    arena, cache = make_cache(16 * 1024, host_bytes=4 * 1024)
    insert(cache, range(16))
    picture = arena.lease(arena.nbytes, "picture")
    assert isinstance(picture, Lease)
    picture.release()
    assert cache.num_host_tokens == 16
    pages = take(cache, 4, "r2")
    cache.insert("x", range(16), pages, "r2")
    assert (cache.num_tokens, cache.num_host_tokens) == (16, 0)
    assert cache.match("x", range(17)).pages == pages
    arena.ledger.check()


def test_a_prefix_that_a_match_cut_from_its_host_copies_can_still_be_evicted() -> None:
    arena, cache = make_cache(host_bytes=4 * 1024)
    insert(cache, range(16))
    evict(cache)
    everything = cache.groups[0].take(cache.groups[0].num_free, "r")
    assert isinstance(everything, list)
    cache.match("x", [*range(12), 99])
    for _ in range(3):
        evict(cache)
    assert (cache.num_tokens, cache.num_host_tokens) == (0, 16)
    arena.ledger.check()


# Several groups


def test_a_match_ends_where_a_group_lacks_what_its_window_needs() -> None:
    """A group that attends to 9 tokens needs the 8 before the next one."""
    arena, cache = make_cache(num_groups=2, windows=[None, 9])
    pages = take(cache, 6)
    cache.groups[1].free([page[1] for page in pages[:3]], "r")
    pages = [(page[0], ABSENT) for page in pages[:3]] + pages[3:]
    cache.insert("x", range(24), pages, "r")
    assert cache.match("x", [*range(24), 99]).pages == pages
    assert cache.match("x", [*range(20), 99]).pages == pages[:5]
    assert num_matched(cache, range(16)) == 0
    whole = take(cache, 3)
    cache.insert("x", range(12), whole, "r")
    assert cache.match("x", [*range(16), 99]).pages == [(p[0], w[1]) for p, w in zip(pages, whole, strict=False)] + [
        pages[3]
    ], "what was absent is filled in"
    arena.ledger.check()
    cache.flush()
    assert set(arena.ledger.owners) == set()


def test_too_few_pages_for_the_tokens_are_our_mistake() -> None:
    _, cache = make_cache()
    with pytest.raises(ValueError, match="2 pages"):
        cache.launched(cache.promise("x", range(8), "r"), 8, take(cache, 1))
