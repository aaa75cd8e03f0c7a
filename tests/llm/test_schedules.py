"""Whatever happens around a request, its tokens are those it gets alone: random arrivals, quanta, parks and aborts."""

import functools
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hemiola.core.memory import Arena
from hemiola.core.request import TextRequest
from hemiola.core.step import Shortfall
from hemiola.llm import LanguageRunner
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, ask

PAGE_BYTES = 4 * 3 * 2 * 2 * 16 * 4
# Prompts of a few stems, so that prefixes are shared, and of sizes that an arena of 700 tokens cannot all hold.
STEMS = [tiny.token_ids(60, seed=1), tiny.token_ids(33, seed=2)]


def request(number: int, stem: int, cut: int, own: int, warm: bool) -> TextRequest:
    ids = STEMS[stem][: 1 + cut] + tiny.token_ids(own, seed=number)
    sampling: dict[str, Any] = {"temperature": 0.9, "seed": number, "top_p": 0.95} if warm else {}
    return ask(f"r{number}", ids, max_tokens=1 + own % 12, **sampling)


@functools.cache
def alone(asked: TextRequest) -> tuple[int, ...]:
    runner = LanguageRunner("tiny", tiny.folder_of("qwen3"), Arena(4 << 20), prefix_cache=False)
    return tuple(Driver(runner).run(asked)[asked.id])


REQUESTS = st.tuples(st.integers(0, 1), st.integers(0, 59), st.integers(0, 40), st.booleans())
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), REQUESTS),
        st.tuples(st.sampled_from(["park", "resume", "abort"]), st.integers(0, 30)),
        st.tuples(st.just("step"), st.sampled_from([1, 7, 33, 512])),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=25)
@given(actions=ACTIONS, depth=st.sampled_from([1, 2]))
def test_survivors_of_any_schedule_get_the_tokens_they_get_alone(actions: list[tuple[str, Any]], depth: int) -> None:
    arena = Arena(180 * PAGE_BYTES, host_bytes=400 * PAGE_BYTES)
    driver = Driver(LanguageRunner("tiny", tiny.folder_of("qwen3"), arena), depth=depth)
    asked: dict[str, TextRequest] = {}
    numbers = count()
    parked: list[Any] = []
    for kind, value in actions:
        idle = [s for s in driver.states.values() if not any(s in batch.states for batch, _ in driver.in_flight)]
        if kind == "admit":
            one = request(next(numbers), *value)
            if not isinstance(driver.admit(one)[0], Shortfall):
                asked[one.id] = one
        elif kind == "step":
            driver.quantum = value
            driver.step()
        elif kind == "park" and (able := [state for state in idle if state.can_park]):
            state = able[value % len(able)]
            if not isinstance(driver.runner.park(state), Shortfall):
                parked.append(state)
        elif kind == "resume" and parked:
            state = parked[value % len(parked)]
            if not isinstance(driver.runner.resume(state), Shortfall):
                parked.remove(state)
        elif kind == "abort" and driver.states:
            id = list(driver.states)[value % len(driver.states)]
            parked = [state for state in parked if state.id != id]
            driver.abort(id)
            del asked[id]
        arena.ledger.check()
    finish(driver, parked)
    for id, one in asked.items():
        assert tuple(driver.tokens(id)) == alone(one), id
    driver.runner.kv_cache.prefixes.flush()
    assert driver.runner.kv_cache.page_class.held == {}
    assert arena.host.copies == {}


def finish(driver: Driver, parked: list[Any]) -> None:
    """Runs all to their ends; where pages are short for everybody, one request is parked for the others."""
    driver.quantum = 64
    for _ in range(2000):
        if driver.step():
            continue
        if parked and not isinstance(driver.runner.resume(parked[0]), Shortfall):
            parked.pop(0)
            continue
        running = [state for state in driver.states.values() if state not in parked]
        if not running:
            assert not parked
            return
        victim = next((state for state in reversed(running) if state.can_park), None)
        assert victim is not None and len(running) > 1, [state.waiting_for for state in running]
        assert not isinstance(driver.runner.park(victim), Shortfall)
        parked.append(victim)
    raise AssertionError("It does not end.")
