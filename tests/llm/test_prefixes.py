"""What was computed once is not computed again, and nobody can tell from the tokens."""

import msgspec
import pytest

from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, MakeRunner, ask

PROMPT = tiny.token_ids(41, seed=1)


def num_computed(driver: Driver, since: int = 0) -> int:
    return sum(batch.work.new_tokens for batch in driver.launched[since:])


def test_a_second_request_computes_its_last_token_only(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    first = driver.run(ask("a", PROMPT, max_tokens=6))["a"]
    before = len(driver.launched)
    second = driver.run(ask("b", PROMPT, max_tokens=6))["b"]
    assert first == second == tiny.reference_greedy("qwen3", PROMPT, 6)
    assert driver.finished("a").usage.cached_tokens == 0
    assert driver.finished("b").usage.cached_tokens == len(PROMPT) - 1
    assert num_computed(driver, before) == 1 + 5


def test_the_tail_of_a_page_is_copied_not_shared(make_runner: MakeRunner) -> None:
    """Prompts that part in the middle of a page of 4 share its first tokens, and neither harms the other."""
    driver = Driver(make_runner())
    ours, theirs = [*PROMPT[:30], 5, 6, 7], [*PROMPT[:30], 9, 8]
    driver.run(ask("a", ours, max_tokens=5))
    driver.run(ask("b", theirs, max_tokens=5))
    assert driver.finished("b").usage.cached_tokens == 30
    assert driver.tokens("b") == tiny.reference_greedy("qwen3", theirs, 5)
    driver.run(ask("c", ours, max_tokens=5))
    assert driver.tokens("a") == driver.tokens("c") == tiny.reference_greedy("qwen3", ours, 5)


def test_a_turn_finds_the_answers_before_it(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    history = list(PROMPT)
    for turn in range(3):
        answer = driver.run(ask(f"t{turn}", history, max_tokens=9))[f"t{turn}"]
        assert answer == tiny.reference_greedy("qwen3", history, 9)
        # All but the last token of the answer has been computed.
        known = len(history) + len(answer) - 1
        history = history + answer + tiny.token_ids(6, seed=50 + turn)
        cached = driver.admit(ask(f"peek{turn}", history))[0].num_cached
        driver.abort(f"peek{turn}")
        assert cached in (known, known // 4 * 4)


@pytest.mark.parametrize("quantum", [512, 16])
def test_equal_prompts_that_come_together_are_computed_once(make_runner: MakeRunner, quantum: int) -> None:
    driver = Driver(make_runner(), quantum=quantum)
    requests = [ask(f"r{i}", [*PROMPT, 20 + i, 30], max_tokens=4) for i in range(6)]
    tokens = driver.run(*requests)
    for request in requests:
        assert tokens[request.id] == tiny.reference_greedy("qwen3", list(request.token_ids), 4)
    prefill = num_computed(driver) - 6 * 3
    # The first computes all of its prompt; each other what comes after the whole pages that it shares.
    assert prefill == 43 + 5 * 3
    assert sorted(driver.finished(request.id).usage.cached_tokens for request in requests) == [0] + [40] * 5


def test_those_who_wait_compute_when_the_one_they_wait_for_is_aborted(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner(), quantum=8)
    first, second = driver.admit(ask("a", PROMPT), ask("b", PROMPT, max_tokens=5))
    assert first.is_ready and not second.is_ready
    assert second.waiting_for == "the prefix that 'a' computes"
    driver.step()
    driver.abort("a")
    assert second.is_ready
    driver.run()
    assert driver.tokens("b") == tiny.reference_greedy("qwen3", PROMPT, 5)
    assert driver.finished("b").usage.cached_tokens == 8  # what "a" had launched stays


def test_the_more_urgent_never_wait_for_the_less_urgent(make_runner: MakeRunner) -> None:
    runner = make_runner()
    background = msgspec.structs.replace(ask("lazy", PROMPT), service_class="background")
    first, second = Driver(runner).admit(background, ask("urgent", PROMPT))
    assert first.is_ready and second.is_ready


def test_salts_keep_caches_apart(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    driver.run(ask("a", PROMPT, cache_salt="one"))
    driver.run(ask("b", PROMPT, cache_salt="two"), ask("c", PROMPT, cache_salt="one"))
    assert driver.finished("b").usage.cached_tokens == 0
    assert driver.finished("c").usage.cached_tokens == 40
    assert driver.tokens("a") == driver.tokens("b") == driver.tokens("c")


def test_without_a_prefix_cache_everything_is_computed(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner(prefix_cache=False))
    driver.run(ask("a", PROMPT), ask("b", PROMPT))
    driver.run(ask("c", PROMPT))
    assert num_computed(driver) == 3 * (41 + 7)
    assert driver.tokens("c") == tiny.reference_greedy("qwen3", PROMPT, 8)
    assert driver.runner.kv_cache.page_class.held == {}


def test_prefixes_are_evicted_for_requests_that_need_the_room(make_runner: MakeRunner) -> None:
    """An arena for about 350 tokens serves one prompt of 150 after another, each right."""
    page_bytes = 4 * 3 * 2 * 2 * 16 * 4
    driver = Driver(make_runner(arena_bytes=96 * page_bytes, host_bytes=0))
    for i in range(6):
        ids = tiny.token_ids(150, seed=100 + i)
        assert driver.run(ask(f"r{i}", ids))[f"r{i}"] == tiny.reference_greedy("qwen3", ids, 8)
        driver.runner.kv_cache.arena.ledger.check()


def test_the_surplus_token_of_a_finished_row_is_not_cached(make_runner: MakeRunner) -> None:
    greedy = tiny.reference_greedy("qwen3", PROMPT, 12)
    stop = next(token for i, token in enumerate(greedy) if i >= 3 and token not in greedy[:i])
    driver = Driver(make_runner(), depth=2)
    answer = driver.run(ask("a", PROMPT, max_tokens=12, stop_token_ids=(stop,)))["a"]
    state = driver.admit(ask("b", PROMPT + answer + [stop] + greedy[len(answer) + 1 :]))[0]
    assert state.num_cached <= len(PROMPT) + len(answer) + 1
