"""Requests that park, are aborted, fail, or have two steps in flight: others never notice, and no byte is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hemiola.core.step import Shortfall, Slot, Tokens
from hemiola.llm import kv_cache
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, MakeRunner, ask

PROMPTS = {f"r{i}": tiny.token_ids(length, seed=i) for i, length in enumerate((23, 50, 9))}


def expected(id: str, count: int, name: str = "qwen3") -> list[int]:
    return tiny.reference_greedy(name, PROMPTS[id], count)


def assert_nothing_is_held(driver: Driver) -> None:
    kv = driver.runner.kv_cache
    kv.arena.ledger.check()
    owners = {owner for held in kv.page_class.held.values() for owner in held}
    assert owners <= {"prefix:tiny"}
    assert not kv.arena.host.copies or {copy.owner for copy in kv.arena.host.copies.values()} <= {"prefix:tiny"}
    kv.prefixes.flush()
    assert kv.page_class.held == {}


# Two steps in flight


@pytest.mark.parametrize("name", ["qwen3", "gemma2"])
def test_two_steps_in_flight_give_the_same_tokens(make_runner: MakeRunner, name: str) -> None:
    driver = Driver(make_runner(name), depth=2, quantum=20)
    tokens = driver.run(*(ask(id, ids, max_tokens=20) for id, ids in PROMPTS.items()))
    assert tokens == {id: tiny.reference_greedy(name, ids, 20) for id, ids in PROMPTS.items()}
    assert_nothing_is_held(driver)


def test_a_step_is_launched_before_the_host_knows_the_token_of_the_one_before(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner(), depth=2)
    (state,) = driver.admit(ask("r0", PROMPTS["r0"]))
    driver.launch()
    driver.launch()
    assert (len(driver.in_flight), state.num_generated, state.target_len) == (2, 0, 25)
    driver.run()
    assert driver.tokens("r0") == expected("r0", 8)


def test_a_stop_token_ends_the_answer_and_its_surplus_step_is_silent(make_runner: MakeRunner) -> None:
    stop = expected("r1", 6)[-1]
    before = expected("r1", 6).index(stop)
    driver = Driver(make_runner(), depth=2)
    driver.run(ask("r1", PROMPTS["r1"], max_tokens=50, stop_token_ids=(stop,)), ask("r0", PROMPTS["r0"], max_tokens=20))
    assert driver.tokens("r1") == expected("r1", before)
    final = driver.finished("r1")
    assert (final.reason, final.stop_reason) == ("stop", stop)
    assert final.usage.completion_tokens == before + 1
    assert driver.tokens("r0") == expected("r0", 20)
    assert_nothing_is_held(driver)


def test_the_answer_ends_at_max_tokens_and_at_the_end_of_the_context(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner(), depth=2)
    long = tiny.token_ids(509, seed=9)
    tokens = driver.run(ask("a", PROMPTS["r0"], max_tokens=1), ask("b", long, max_tokens=100))
    assert tokens == {"a": expected("r0", 1), "b": tiny.reference_greedy("qwen3", long, 3)}
    assert (driver.finished("a").reason, driver.finished("b").reason) == ("length", "length")
    assert driver.finished("b").usage.prompt_tokens == 509


# Parking


@pytest.mark.parametrize("when", [1, 2, 4, 6, 9])
def test_a_parked_request_comes_back_bit_equal(make_runner: MakeRunner, when: int) -> None:
    """Parked in the middle of its prompt or of its answer, while others take its pages."""
    driver = Driver(make_runner(host_bytes=1 << 20), quantum=16)
    (state,) = driver.admit(ask("r1", PROMPTS["r1"], max_tokens=9))
    for _ in range(when):
        driver.step()
    kv, runner = driver.runner.kv_cache, driver.runner
    before = kv.view[state.memory.pages].clone()
    assert not isinstance(runner.park(state), Shortfall)
    assert (state.memory.pages, state.is_ready, state.can_park) == ([], False, False)
    assert state.bytes_needed >= before.shape[0] * kv.page_bytes - 4 * kv.page_bytes
    kv.prefixes.flush()
    assert not any("r1" in owners for owners in kv.page_class.held.values())
    others = Driver(runner)
    others.run(ask("other", tiny.token_ids(300, seed=8), max_tokens=2))
    assert not isinstance(runner.resume(state), Shortfall)
    used = kv.pages_for(state.num_computed)
    assert torch.equal(kv.view[state.memory.pages[:used]], before[:used])
    driver.run()
    assert driver.tokens("r1") == expected("r1", 9)
    assert_nothing_is_held(driver)


def test_what_comes_back_is_written_before_any_lanes_next_step(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume is no step in flight. Pages of a request that was aborted behind it went to another lane at once, whose
    step could run while the bytes were still being written: only the copy from the host was waited for."""
    driver = Driver(make_runner(), quantum=16)
    (state,) = driver.admit(ask("r1", PROMPTS["r1"], max_tokens=9))
    for _ in range(5):
        driver.step()
    runner, arena = driver.runner, driver.runner.kv_cache.arena
    runner.park(state)
    runner.kv_cache.prefixes.flush()
    arena.buffer.fill_(0x5A)
    waited_for: list[torch.Tensor] = []

    @contextmanager
    def outside() -> Iterator[None]:
        yield
        waited_for.append(arena.buffer.clone())

    monkeypatch.setattr(arena.clock, "outside", outside)
    runner.resume(state)
    assert not (arena.buffer == 0x5A).all()
    assert torch.equal(waited_for[-1], arena.buffer)


class Copied(TorchDispatchMode):
    """Fields: the most bytes that any tensor had which was made for copies."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.index_select.default, torch.ops.aten.new_empty.default):
            self.most = max(self.most, made.numel() * made.element_size())
        return made


def test_copies_to_the_host_and_back_take_little_memory_beside_the_arena(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages of a request were gathered at once: gigabytes of a long one, which nobody kept free for it."""
    driver = Driver(make_runner())
    (state,) = driver.admit(ask("r1", PROMPTS["r1"], max_tokens=9))
    driver.step()
    kv, runner = driver.runner.kv_cache, driver.runner
    monkeypatch.setattr(kv_cache, "MOVED_AT_ONCE_BYTES", 3 * kv.page_bytes, raising=False)
    assert len(state.memory.pages) > 9
    with Copied() as copied:  # type: ignore[no-untyped-call]
        runner.park(state)
        kv.prefixes.flush()
        kv.arena.buffer.fill_(0x5A)
        runner.resume(state)
    assert kv.page_bytes < copied.most <= 3 * kv.page_bytes
    driver.run()
    assert driver.tokens("r1") == expected("r1", 9)
    assert_nothing_is_held(driver)


def test_resuming_shares_what_the_cache_still_holds(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    driver.run(ask("r1", PROMPTS["r1"], max_tokens=2))
    (state,) = driver.admit(ask("again", PROMPTS["r1"], max_tokens=9))
    driver.step()
    pages = list(state.memory.pages)
    driver.runner.park(state)
    driver.runner.resume(state)
    assert state.memory.pages[:12] == pages[:12]
    assert state.memory.num_shared >= 12
    driver.run()
    assert driver.tokens("again") == expected("r1", 9)
    assert_nothing_is_held(driver)


def test_a_full_host_tier_is_a_shortfall_and_nothing_changes(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner(host_bytes=256))
    (state,) = driver.admit(ask("r1", PROMPTS["r1"]))
    driver.step()
    pages = list(state.memory.pages)
    assert isinstance(driver.runner.park(state), Shortfall)
    assert (state.memory.pages, state.is_ready) == (pages, True)
    driver.run()
    assert driver.tokens("r1") == expected("r1", 8)


def test_a_resume_that_does_not_fit_leaves_the_request_parked(make_runner: MakeRunner) -> None:
    page_bytes = 4 * 3 * 2 * 2 * 16 * 4
    driver = Driver(make_runner(arena_bytes=96 * page_bytes, host_bytes=1 << 20))
    runner = driver.runner
    (state,) = driver.admit(ask("r1", PROMPTS["r1"], max_tokens=9))
    driver.step()
    runner.park(state)
    arena = runner.kv_cache.arena
    hog = []
    while not isinstance(lease := arena.lease(page_bytes, "hog"), Shortfall):
        hog.append(lease)
    shortfall = runner.resume(state)
    assert isinstance(shortfall, Shortfall) and shortfall.page_class == "tiny"
    assert not state.is_ready
    for lease in hog:
        lease.release()
    assert not isinstance(runner.resume(state), Shortfall)
    driver.run()
    assert driver.tokens("r1") == expected("r1", 9)
    assert_nothing_is_held(driver)


# Aborts and failures


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("when", range(8))
def test_an_abort_in_any_phase_frees_all_bytes_and_harms_nobody(make_runner: MakeRunner, when: int, depth: int) -> None:
    """Before the first chunk, between chunks, with steps in flight, while decoding."""
    driver = Driver(make_runner(), quantum=16, depth=depth)
    driver.admit(*(ask(id, ids, max_tokens=9) for id, ids in PROMPTS.items()))
    for _ in range(when):
        driver.step()
    if "r1" in driver.states:
        driver.abort("r1")
    driver.run()
    assert driver.tokens("r0") == expected("r0", 9)
    assert driver.tokens("r2") == expected("r2", 9)
    assert driver.tokens("r1") == expected("r1", 9)[: len(driver.tokens("r1"))]
    assert_nothing_is_held(driver)


def test_an_abort_while_parked_frees_the_host(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    (state,) = driver.admit(ask("r1", PROMPTS["r1"]))
    driver.step()
    driver.runner.park(state)
    driver.abort("r1")
    assert_nothing_is_held(driver)


def test_a_failed_launch_advances_nobody_and_can_be_tried_again(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(make_runner(), quantum=16)
    states = driver.admit(*(ask(id, ids) for id, ids in PROMPTS.items()))
    driver.step()
    runner = driver.runner
    before = [(s.num_computed, s.target_len, len(s.memory.pages), s.num_steps) for s in states]
    model = runner.steps._model
    forward = model.forward
    calls = []

    def broken(*inputs: Any) -> None:
        calls.append(1)
        forward(*inputs)
        raise RuntimeError("out of luck")

    monkeypatch.setattr(model, "forward", broken)
    batch = runner.plan([s for s in states if s.is_ready], Tokens(64))
    with pytest.raises(RuntimeError, match="out of luck"):
        runner.launch(batch, Slot("device", 1.0, 99, 0.0))
    runner.cancel(batch)
    assert [(s.num_computed, s.target_len, len(s.memory.pages), s.num_steps) for s in states] == before
    monkeypatch.setattr(model, "forward", forward)
    driver.run()
    assert {id: driver.tokens(id) for id in PROMPTS} == {id: expected(id, 8) for id in PROMPTS}
    assert calls
    assert_nothing_is_held(driver)


def test_page_tables_follow_when_the_arena_moves_pages_aside(make_runner: MakeRunner) -> None:
    """As it does to clear spans for a large lease; a parked request that shares pages follows too."""
    driver = Driver(make_runner())
    driver.run(ask("before", PROMPTS["r2"], max_tokens=1))
    states = driver.admit(*(ask(id, ids, max_tokens=16) for id, ids in PROMPTS.items()))
    driver.admit(ask("filler", tiny.token_ids(450, seed=3), max_tokens=30))
    for _ in range(4):
        driver.step()
    driver.runner.park(states[2])
    driver.abort("filler")
    page_class = driver.runner.kv_cache.page_class
    driver.runner.kv_cache.prefixes.flush()
    before = [list(state.memory.pages) for state in states[:2]]
    span = states[0].memory.pages[0] * page_class.page_bytes // driver.runner.kv_cache.arena.span_bytes
    assert page_class.vacate([span], lambda: False)
    assert [list(state.memory.pages) for state in states[:2]] != before
    driver.runner.resume(states[2])
    driver.run()
    assert {id: driver.tokens(id) for id in PROMPTS} == {id: expected(id, 16) for id in PROMPTS}
    assert_nothing_is_held(driver)
