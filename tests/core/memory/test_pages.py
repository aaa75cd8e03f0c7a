"""Pages of a class: one strided view, reference counts, retiring, fullest span first."""

from collections import Counter
from collections.abc import Mapping
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hemiola.core.device import InFlight
from hemiola.core.memory import Arena, Lease, Need, PageClass, PrefixCache
from hemiola.core.memory.pages import take_together
from hemiola.core.step import Shortfall


def taken(pages: list[int] | Shortfall) -> list[int]:
    assert isinstance(pages, list)
    return pages


def rename(model: dict[int, list[str]], moves: Mapping[int, int]) -> None:
    model.update({new: model.pop(old) for old, new in moves.items()})


def test_one_view_serves_all_layers_and_pages_of_a_class_that_nothing_divides() -> None:
    arena = Arena(40_000)
    page_class = arena.add_page_class("kv", 3 * 2 * 4 * 2 * 5 * 2)
    padded = arena.add_page_class("padded", 512).view(1, 4, 2, 5, torch.float32)
    assert padded.stride(0) * 4 == 512 > padded[0].numel() * 4
    view = page_class.view(3, 4, 2, 5, torch.float16)
    assert view.shape[1:] == (3, 2, 4, 2, 5)
    for page in taken(page_class.take(20, "r")):
        view[page] = page
        assert bool((page_class.bytes_of(page).view(torch.float16) == page).all())
        assert page_class.bytes_of(page).data_ptr() == arena.buffer.data_ptr() + page * page_class.page_bytes
    with pytest.raises(ValueError, match="does not fit pages of 480 bytes"):
        page_class.view(3, 4, 2, 6, torch.float16)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pages_equal_a_dict_of_owner_lists(data: st.DataObject) -> None:
    arena = Arena(30_000)
    classes = [arena.add_page_class("a", 200), arena.add_page_class("b", 330)]
    models: list[dict[int, list[str]]] = [{}, {}]
    for page_class, model in zip(classes, models, strict=True):
        page_class.on_moved(partial(rename, model))
    for _ in range(data.draw(st.integers(1, 40))):
        i = data.draw(st.integers(0, 1))
        page_class, model = classes[i], models[i]
        act = data.draw(st.sampled_from(["take", "take", "retain", "free"]))
        owner = data.draw(st.sampled_from("xyz"))
        if act == "take":
            count = data.draw(st.integers(0, 40))
            can = arena.can_lease(Need(pages={page_class.name: count}))
            pages = page_class.take(count, owner)
            assert isinstance(pages, list) == can
            if isinstance(pages, list):
                assert len(pages) == len(set(pages)) == count
                assert not set(pages) & model.keys()
                model.update({page: [owner] for page in pages})
        elif act == "retain" and model:
            page = data.draw(st.sampled_from(sorted(model)))
            page_class.retain([page], owner)
            model[page].append(owner)
        elif act == "free":
            pages = [page for page, names in model.items() if owner in names]
            page_class.free(pages, owner)
            for page in pages:
                model[page].remove(owner)
                if not model[page]:
                    del model[page]
        for page_class, model in zip(classes, models, strict=True):
            assert {page: Counter(names) for page, names in page_class.held.items()} == {
                page: Counter(names) for page, names in model.items()
            }
            starts = [page * page_class.page_bytes for page in model]
            assert all(s // arena.span_bytes == (s + page_class.page_bytes - 1) // arena.span_bytes for s in starts)
        arena.ledger.check()
    spans = [{page * c.page_bytes // arena.span_bytes for page in m} for c, m in zip(classes, models, strict=True)]
    assert not spans[0] & spans[1]


def test_new_pages_go_to_the_fullest_span_so_that_others_can_have_whole_ones() -> None:
    arena = Arena(100_000)
    page_class = arena.add_page_class("kv", 1000)
    pages = taken(page_class.take(70, "r"))
    span_of = {page: page * 1000 // arena.span_bytes for page in pages}
    sizes = Counter(span_of.values())
    full = [span for span, count in sizes.items() if count == len(page_class.ids_in(span))]
    fullest, half, emptiest = full[:3]
    for span, count in ((fullest, 2), (half, 4), (emptiest, 7)):
        page_class.free([page for page in pages if span_of[page] == span][:count], "r")
    partly_filled = sum(len(page_class.ids_in(span)) - count for span, count in sizes.items() if span not in full)
    new = taken(page_class.take(partly_filled + 2 + 4, "s"))
    spans = [page * 1000 // arena.span_bytes for page in new if page * 1000 // arena.span_bytes in full]
    assert Counter(spans) == {fullest: 2, half: 4}


def test_freed_pages_retire_until_the_steps_in_flight_are_complete() -> None:
    clock = InFlight()
    arena = Arena(8 * 2304, clock=clock)
    page_class = arena.add_page_class("kv", 256)
    everything = taken(page_class.take(page_class.num_pages_possible, "r"))
    clock.launched("language", 1)
    clock.launched("media", 1)
    page_class.free(everything, "r")
    version = arena.version
    assert page_class.num_retiring == len(everything)
    assert page_class.take(1, "s") == Shortfall(256, "kv")
    assert not arena.can_lease(Need((256,)))
    clock.completed("language", 1)
    assert page_class.take(1, "s") == Shortfall(256, "kv")
    clock.completed("media", 1)
    assert arena.version > version
    assert len(taken(page_class.take(len(everything), "s"))) == len(everything)


def test_a_page_with_two_references_survives_one_free() -> None:
    arena = Arena(30_000)
    page_class = arena.add_page_class("kv", 256)
    (page,) = taken(page_class.take(1, "r"))
    page_class.retain([page], "cache")
    page_class.free([page], "r")
    assert page_class.owners_of(page) == ["cache"]
    with pytest.raises(ValueError, match="not in list"):
        page_class.free([page], "r")
    page_class.free([page], "cache")
    assert page_class.owners_of(page) == ()
    with pytest.raises(KeyError):
        page_class.free([page], "cache")


def scattered(arena: Arena, page_class: PageClass) -> dict[int, int]:
    """Every page held with a content of its own, then all but every fifth freed; {page: content} of those left."""
    pages = taken(page_class.take(page_class.num_free, "r"))
    left = {page: 1 + i % 250 for i, page in enumerate(pages) if i % 5 == 0}
    page_class.free([page for page in pages if page not in left], "r")
    for page, content in left.items():
        page_class.bytes_of(page).fill_(content)
    return left


def test_held_pages_move_out_of_the_spans_that_a_lease_wants_with_their_contents() -> None:
    arena = Arena(64 * 1024)
    page_class = arena.add_page_class("kv", 700)
    left = scattered(arena, page_class)
    page_class.on_moved(lambda moves: left.update({moves[old]: left.pop(old) for old in list(left) if old in moves}))
    lease = arena.lease(40 * 1024, "picture")
    assert isinstance(lease, Lease)
    lease.tensor((40 * 1024,), torch.uint8).fill_(255)
    assert set(page_class.held) == set(left)
    assert all(bool((page_class.bytes_of(page) == content).all()) for page, content in left.items())
    arena.ledger.check()


def wanted_room() -> tuple[Arena, PageClass, PrefixCache]:
    """A lease of 30 KiB fell short because pages that moved aside for it retire; a cached prefix could go."""
    clock = InFlight()
    arena = Arena(64 * 1024, clock=clock)
    page_class = arena.add_page_class("kv", 700)
    cache = PrefixCache(arena, [page_class], 4)
    cache.insert("x", range(40), [(page,) for page in taken(page_class.take(10, "r"))], "r")
    scattered(arena, page_class)
    clock.launched("language", 1)
    assert isinstance(arena.lease(30 * 1024, "picture"), Shortfall)
    assert page_class.num_retiring > 0
    assert isinstance(arena.lease(30 * 1024, "picture"), Shortfall)
    assert cache.num_tokens == 40
    clock.completed("language", 1)
    clock.launched("language", 2)
    taken(page_class.take(page_class.num_ready, "decode"))
    return arena, page_class, cache


def test_room_that_still_retires_is_kept_for_the_lease_that_wanted_it() -> None:
    """Rather than there, pages are taken from the prefix cache."""
    arena, page_class, cache = wanted_room()
    taken(page_class.take(3, "decode"))
    assert cache.num_tokens == 40 - 3 * 4
    assert isinstance(arena.lease(30 * 1024, "picture"), Lease)
    arena.ledger.check()


def test_while_room_is_on_its_way_no_more_is_cleared() -> None:
    clock = InFlight()
    arena = Arena(128 * 1024, clock=clock)
    page_class = arena.add_page_class("kv", 700)
    moves: list[int] = []
    page_class.on_moved(lambda moved: moves.append(len(moved)))
    scattered(arena, page_class)
    clock.launched("language", 1)
    for _ in range(3):
        assert isinstance(arena.lease(20 * 1024, "picture"), Shortfall)
    assert len(moves) == 1
    clock.completed("language", 1)
    assert isinstance(arena.lease(20 * 1024, "picture"), Lease)
    assert len(moves) == 1


def test_room_that_nobody_asks_for_again_is_anybodys_after_some_steps() -> None:
    arena, page_class, cache = wanted_room()
    for sequence in range(3, 11):
        arena.clock.completed("language", sequence)
    taken(page_class.take(3, "decode"))
    assert cache.num_tokens == 40


def test_kept_room_serves_pages_rather_than_that_they_fall_short() -> None:
    _, page_class, cache = wanted_room()
    taken(page_class.take(10 + page_class.num_free, "decode"))
    assert cache.num_tokens == 0
    assert page_class.take(1, "decode") == Shortfall(700, "kv")


def test_pages_of_several_classes_are_taken_together_or_not_at_all() -> None:
    arena = Arena(40_000)
    small, large = arena.add_page_class("small", 100), arena.add_page_class("large", 400)
    pages = take_together([small, large], 20, "r")
    assert isinstance(pages, list)
    assert [len(of) for of in pages] == [20, 20]
    assert take_together([small, large], 80, "r") == Shortfall(80 * 400, "large")
    assert (len(small.held), len(large.held)) == (20, 20)
    arena.ledger.check()
