"""Everything at once: requests, caches, leases, moves, evictions, host copies and steps in flight, at random.

A `World` plays what runners do and keeps plain lists and dicts of what it owns and of which bytes it wrote. The same
operations are drawn by hypothesis, which shrinks what fails, and by one long seeded run.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hemiola.core.device import InFlight
from hemiola.core.memory import Arena, HostCopy, Lease, Match, Need, PageClass, PrefixCache, Promise
from hemiola.core.step import Shortfall, Work

PAGE_LEN = 4
OWN_LANE = "language"


@dataclass
class Row:
    """A text request: the first `num_shared` pages are the cache's, the others its own."""

    id: str
    cache: PrefixCache
    namespace: str
    token_ids: list[int]
    match: Match
    promise: Promise = field(init=False)  # made once the row has its pages
    pages: list[tuple[int, ...]]
    num_shared: int
    num_computed: int


@dataclass
class World:
    pick: Callable[[int], int]
    clock: InFlight = field(default_factory=InFlight)
    rows: list[Row] = field(default_factory=list)
    leases: list[tuple[Lease, int]] = field(default_factory=list)
    locked: list[tuple[int, Lease]] = field(default_factory=list)
    parked: list[tuple[HostCopy, int]] = field(default_factory=list)
    sequence: dict[str, int] = field(default_factory=lambda: {OWN_LANE: 0, "media": 0})
    launched: dict[str, list[int]] = field(default_factory=lambda: {OWN_LANE: [], "media": []})
    num_made: int = 0
    num_moved: int = 0

    def __post_init__(self) -> None:
        self.arena = Arena(64 * 1024, host_bytes=16 * 1024, clock=self.clock)
        groups = [self.arena.add_page_class(name, size) for name, size in (("a", 192), ("b", 320), ("c", 512))]
        self.caches = [PrefixCache(self.arena, groups[:2], PAGE_LEN), PrefixCache(self.arena, groups[2:], PAGE_LEN)]
        for page_class in groups:
            page_class.on_moved(partial(self.moved, page_class))

    # Contents

    def moved(self, page_class: PageClass, moves: Mapping[int, int]) -> None:
        self.num_moved += len(moves)
        for row in self.rows:
            for group, its_class in enumerate(row.cache.groups):
                if its_class is page_class:
                    row.pages = [(*p[:group], moves.get(p[group], p[group]), *p[group + 1 :]) for p in row.pages]

    def slot(self, cache: PrefixCache, group: int, page: int, offset: int) -> torch.Tensor:
        size = cache.groups[group].page_bytes // PAGE_LEN
        return cache.groups[group].bytes_of(page)[offset * size : (offset + 1) * size]

    def mark(self, row: Row, position: int, group: int) -> int:
        """The byte that the keys and values of a position consist of: depends on all tokens up to it."""
        return hash((ord(row.namespace), tuple(row.token_ids[: position + 1]), group)) % 251

    def verify_row(self, row: Row) -> None:
        for position in range(row.num_computed):
            for group, page in enumerate(row.pages[position // PAGE_LEN]):
                slot = self.slot(row.cache, group, page, position % PAGE_LEN)
                assert int(slot[0]) == int(slot[-1]) == self.mark(row, position, group)

    def verify(self) -> None:
        for row in self.rows:
            self.verify_row(row)
        for lease, mark in self.leases:
            assert bool((lease.tensor((lease.nbytes,), torch.uint8) == mark).all())
        for key, lease in self.locked:
            assert bool((lease.tensor((lease.nbytes,), torch.uint8) == key % 251).all())
        self.arena.ledger.check()

    # Text

    def admit(self) -> None:
        cache, namespace = self.caches[self.pick(2)], "xy"[self.pick(2)]
        first, length = self.pick(3), 1 + self.pick(40)
        token_ids = [(first + i // 9) % 3 for i in range(length)]
        token_ids[length - 1 - self.pick(min(length, 12))] = self.pick(3)
        match = cache.match(namespace, token_ids)
        if not match.is_launched:
            assert match.waits_for is not None and match.waits_until > match.num_tokens - match.tail_len
            return
        row = Row(self.name(), cache, namespace, token_ids, match, [], len(match.pages), 0)
        cache.lock(match.node)
        new = self.take(row, -(-length // PAGE_LEN) - row.num_shared)
        if new is None:
            cache.unlock(match.node)
            return
        if match.tail_page is not None:
            for group, page_class in enumerate(cache.groups):
                page_class.bytes_of(new[0][group]).copy_(page_class.bytes_of(match.tail_page[group]))
        row.pages = match.pages + new
        row.num_computed = match.num_tokens
        row.promise = cache.promise(namespace, token_ids, row.id)
        self.rows.append(row)
        self.verify_row(row)

    def take(self, row: Row, count: int) -> list[tuple[int, ...]] | None:
        can = all(self.arena.can_lease(Need(pages={c.name: count})) for c in row.cache.groups)
        pages = row.cache.take(count, row.id)
        assert can or isinstance(pages, Shortfall)
        return None if isinstance(pages, Shortfall) else pages

    def step(self) -> None:
        """A prefill chunk, or a decode once the prompt is computed."""
        if not self.rows or len(self.launched[OWN_LANE]) == 2:
            return
        row = self.rows[self.pick(len(self.rows))]
        if row.num_computed == len(row.token_ids):
            if len(row.token_ids) % PAGE_LEN == 0:
                new = self.take(row, 1)
                if new is None:
                    return
                row.pages += new
            row.token_ids.append(self.pick(3))
        end = min(row.num_computed + 1 + self.pick(16), len(row.token_ids))
        for position in range(row.num_computed, end):
            assert position // PAGE_LEN >= row.num_shared
            for group, page in enumerate(row.pages[position // PAGE_LEN]):
                self.slot(row.cache, group, page, position % PAGE_LEN).fill_(self.mark(row, position, group))
        row.num_computed = end
        self.launch(OWN_LANE)
        row.cache.launched(row.promise, end, row.pages)

    def finish(self) -> None:
        if not self.rows:
            return
        row = self.rows.pop(self.pick(len(self.rows)))
        self.verify_row(row)
        num_whole = row.cache.insert(row.namespace, row.token_ids[: row.num_computed], row.pages, row.id) // PAGE_LEN
        self.leave(row, row.pages[max(num_whole, row.num_shared) :], True)

    def abort(self) -> None:
        if self.rows:
            row = self.rows.pop(self.pick(len(self.rows)))
            self.leave(row, row.pages[row.num_shared :], self.pick(2) == 0)

    def leave(self, row: Row, own: list[tuple[int, ...]], is_valid: bool) -> None:
        row.cache.break_promise(row.promise, is_valid=is_valid)
        row.cache.unlock(row.match.node)
        for group, page_class in enumerate(row.cache.groups):
            page_class.free([page[group] for page in own], row.id)

    def pin(self) -> None:
        cache, token_ids = self.caches[self.pick(2)], [self.pick(3)] * 8
        cache.pin("x", token_ids)
        if self.pick(2):
            cache.unpin("x", token_ids)

    def flush(self) -> None:
        if self.pick(20) == 0:
            self.caches[self.pick(2)].flush()

    # Leases

    def lease(self) -> None:
        sizes = [1 + self.pick(5000) for _ in range(1 + self.pick(3))]
        can = self.arena.can_lease(Need(tuple(sizes)))
        leases = self.arena.lease_all(sizes, "general")
        if isinstance(leases, Shortfall):
            assert not (can and self.clock.is_idle)
            return
        assert can
        for lease in leases:
            mark = self.pick(251)
            lease.tensor((lease.nbytes,), torch.uint8).fill_(mark)
            self.leases.append((lease, mark))

    def release(self) -> None:
        if self.leases:
            self.leases.pop(self.pick(len(self.leases)))[0].release()

    def share(self) -> None:
        key = self.pick(12)
        lease = self.arena.find(key)
        if lease is None:
            made = self.arena.share(key, 200 + 300 * key, Work(new_tokens=1 + self.pick(50)), "conditions")
            if isinstance(made, Shortfall):
                return
            lease = made
            lease.tensor((lease.nbytes,), torch.uint8).fill_(key % 251)
        assert bool((lease.tensor((lease.nbytes,), torch.uint8) == key % 251).all())
        self.locked.append((key, lease))

    def unlock(self) -> None:
        if self.locked:
            self.locked.pop(self.pick(len(self.locked)))[1].unlock()

    def park(self) -> None:
        if self.leases:
            lease, mark = self.leases[self.pick(len(self.leases))]
            copy = self.arena.host.store(lease.tensor((lease.nbytes,), torch.uint8), "general")
            if isinstance(copy, HostCopy):
                self.leases.remove((lease, mark))
                lease.release()
                self.parked.append((copy, mark))

    def resume(self) -> None:
        if self.parked:
            copy, mark = self.parked[self.pick(len(self.parked))]
            lease = self.arena.lease(copy.nbytes, "general")
            if isinstance(lease, Lease):
                copy.load_into(lease.tensor((copy.nbytes,), torch.uint8))
                copy.release()
                self.parked.remove((copy, mark))
                self.leases.append((lease, mark))

    # Steps

    def launch(self, lane: str) -> None:
        self.sequence[lane] += 1
        self.clock.launched(lane, self.sequence[lane])
        self.launched[lane].append(self.sequence[lane])

    def launch_media(self) -> None:
        if len(self.launched["media"]) < 2:
            self.launch("media")

    def complete(self) -> None:
        lane = (OWN_LANE, "media")[self.pick(2)]
        if self.launched[lane]:
            self.clock.completed(lane, self.launched[lane].pop(0))

    def ask(self) -> None:
        page_class = [page_class for cache in self.caches for page_class in cache.groups][self.pick(3)]
        size, count = 1 + self.pick(40000), self.pick(200)
        for need in (Need((size,)), Need(pages={page_class.name: count}), Need((size,), {page_class.name: count})):
            assert self.arena.could_ever_lease(need) or not self.arena.can_lease(need)
        can = self.arena.can_lease(Need(pages={page_class.name: count}))
        pages = page_class.take(count, "asked")
        if isinstance(pages, list):
            page_class.free(pages, "asked")
        assert isinstance(pages, list) == can or not self.clock.is_idle

    def name(self) -> str:
        self.num_made += 1
        return f"r{self.num_made}"

    def operate(self) -> None:
        OPERATIONS[self.pick(len(OPERATIONS))](self)

    def end(self) -> None:
        """All go home; every byte is free."""
        while self.rows:
            self.finish()
        while self.leases:
            self.release()
        while self.locked:
            self.unlock()
        for copy, _ in self.parked:
            copy.release()
        for lane, sequence in self.sequence.items():
            self.clock.completed(lane, sequence)
        for cache in self.caches:
            for token_ids in ([i] * 8 for i in range(3)):
                cache.pin("x", token_ids)
                cache.unpin("x", token_ids)
            cache.flush()
        self.arena.ledger.check()
        assert all(owner.startswith("condition:") for owner in self.arena.ledger.owners)
        everything = self.arena.lease(self.arena.nbytes, "all")
        assert isinstance(everything, Lease)
        assert self.arena.host.num_free_bytes == self.arena.host.nbytes


OPERATIONS = (
    *(World.admit,) * 4, *(World.step,) * 9, *(World.finish,) * 2, World.abort, World.pin, World.flush,
    World.lease, *(World.release,) * 2, *(World.share,) * 2, *(World.unlock,) * 3, World.park, *(World.resume,) * 2,
    World.launch_media, *(World.complete,) * 6, *(World.ask,) * 2,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_mix_of_operations_keeps_every_byte_owned_once_and_every_content_intact(data: st.DataObject) -> None:
    world = World(lambda n: data.draw(st.integers(0, n - 1)))
    for _ in range(data.draw(st.integers(1, 60))):
        world.operate()
        world.verify()
    world.end()


def test_ten_thousand_random_operations_leak_nothing() -> None:
    chance = random.Random(20260131)
    world = World(lambda n: chance.randrange(n))
    for i in range(10_000):
        world.operate()
        if i % 10 == 0:
            world.verify()
    figures = [(c.stats.num_hit_tokens, c.num_evicted_tokens, c.num_restored_tokens) for c in world.caches]
    world.end()
    assert world.num_moved > 100, world.num_moved
    assert all(hits > 1000 and evicted > 1000 and restored > 100 for hits, evicted, restored in figures), figures
