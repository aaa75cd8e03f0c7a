"""Tokens of a seed depend on nothing but their own request; what was asked of the distribution is honoured."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from hemiola.core.events import Token
from hemiola.core.request import Sampling
from hemiola.kernels.sampling import Draw
from hemiola.kernels.sampling.torch_reference import TorchSampler
from hemiola.llm.choosing import Asked, choose
from hemiola.llm.random_stream import uniforms
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, MakeRunner, ask

PROMPT = tiny.token_ids(20, seed=2)
WARM: dict[str, Any] = {"temperature": 1.3, "top_p": 0.9, "top_k": 40, "seed": 11}


def test_uniforms_are_uniform_and_differ_by_seed_and_counter() -> None:
    numbers = uniforms([7] * 20_000, range(20_000))
    assert 0 <= numbers.min() < 1e-3 and 1 - 1e-3 < numbers.max() < 1
    assert np.histogram(numbers, 10, (0, 1))[0] == pytest.approx([2000] * 10, rel=0.1)
    # Neighbouring seeds are what the answers of one request for several get: they must not be shifts of each other.
    neighbour = uniforms([8] * 20_000, range(20_000))
    assert abs(np.corrcoef(numbers[1:], neighbour[:-1])[0, 1]) < 0.03
    assert abs(np.corrcoef(numbers, neighbour)[0, 1]) < 0.03
    assert np.array_equal(numbers * 2**32, np.floor(numbers * 2**32))


def test_uniforms_of_a_seed_never_change() -> None:
    """Recorded once: a change would give other answers to old seeds."""
    assert uniforms([0, 1, -1, 2**63 - 1], [0, 0, 5, 9]).tolist() == RECORDED


def test_a_seed_gives_the_same_tokens_alone_in_a_crowd_and_with_other_chunks(make_runner: MakeRunner) -> None:
    alone = Driver(make_runner()).run(ask("a", PROMPT, max_tokens=24, **WARM))["a"]
    crowd = Driver(make_runner(prefix_cache=False), quantum=12, depth=2)
    others = [ask(f"o{i}", tiny.token_ids(5 + 7 * i, seed=i), max_tokens=30, temperature=0.5 * i) for i in range(5)]
    together = crowd.run(*others[:3], ask("a", PROMPT, max_tokens=24, **WARM), *others[3:])
    assert together["a"] == alone
    other_seed = Driver(make_runner()).run(ask("a", PROMPT, max_tokens=24, **{**WARM, "seed": 12}))["a"]
    assert other_seed != alone


def test_temperature_0_is_greedy_and_top_k_1_too(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    tokens = driver.run(ask("a", PROMPT), ask("b", PROMPT, temperature=2.0, top_k=1), ask("c", PROMPT, top_p=1e-6))
    assert tokens["a"] == tokens["b"] == tokens["c"] == tiny.reference_greedy("qwen3", PROMPT, 8)


@pytest.mark.parametrize("tiny_number", [1e-35, 1e-42, 1e-50, 5e-324])
def test_the_smallest_numbers_that_are_allowed_choose_the_likeliest_token(tiny_number: float) -> None:
    """They were 0 as float32, or made infinite logits: then no token is likeliest, and a GPU's sampler named none."""
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(1)) * 20
    asked = {
        0: Asked(Sampling(temperature=tiny_number, seed=3), 0),
        1: Asked(Sampling(temperature=1.0, top_p=tiny_number, seed=3), 0),
    }
    draws: list[Draw] = []

    class Watched(TorchSampler):
        @staticmethod
        def sample(logits_RV: torch.Tensor, draw: Draw) -> torch.Tensor:
            draws.append(draw)
            return TorchSampler.sample(logits_RV, draw)

    assert choose(Watched, logits, asked).tokens_R.tolist() == logits.argmax(-1).tolist()
    (draw,) = draws
    assert draw.temperature_R.min() > 0 and draw.top_p_R.min() > 0
    assert (logits / draw.temperature_R[:, None]).isfinite().all()


def test_forced_tokens_come_out_with_the_models_own_log_probabilities(make_runner: MakeRunner) -> None:
    """As when it chooses the same tokens itself, and beside others that choose; what follows is as if it had."""
    driver = Driver(make_runner(prefix_cache=False))
    chosen = driver.run(ask("chosen", PROMPT, max_tokens=6, logprobs=0))["chosen"]
    own = [event.logprob for event in driver.events["chosen"] if isinstance(event, Token)]
    other = tuple(tiny.token_ids(4, seed=9))
    forced = driver.run(
        ask("same", PROMPT, max_tokens=6, logprobs=0, temperature=1.5, seed=3, forced_token_ids=tuple(chosen)),
        ask("other", PROMPT, max_tokens=6, forced_token_ids=other),
        ask("free", PROMPT, max_tokens=6),
    )
    assert forced["same"] == chosen == forced["free"]
    assert [e.logprob for e in driver.events["same"] if isinstance(e, Token)] == pytest.approx(own, abs=1e-5)
    assert tuple(forced["other"][:4]) == other
    whole = [*PROMPT, *other]
    assert list(forced["other"][4:]) == list(tiny.reference_greedy("qwen3", whole, 2))


def test_frequencies_are_the_filtered_probabilities() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0]).repeat(4000, 1)
    sampling = Sampling(temperature=0.8, top_p=0.9, top_k=4, seed=5)
    tokens = choose(TorchSampler, logits, {i: Asked(sampling, i) for i in range(4000)}).tokens_R.tolist()
    probs = torch.softmax(logits[0] / 0.8, -1)
    kept = probs[:4] / probs[:4].sum()
    kept = kept * (kept.cumsum(0) - kept < 0.9)
    expected = (kept / kept.sum()).tolist()
    counts = Counter(tokens)
    assert [counts[i] / 4000 for i in range(4)] == pytest.approx(expected, abs=0.03)
    assert counts[4] == counts[5] == 0


def test_each_row_of_a_mixed_batch_is_asked_for_what_it_wants() -> None:
    logits = torch.randn(5, 50, generator=torch.Generator().manual_seed(1))
    asked = {1: Asked(Sampling(temperature=0.0, logprobs=0), 3), 3: Asked(Sampling(seed=9, logprobs=4), 0)}
    chosen = choose(TorchSampler, logits, asked)
    assert chosen.tokens_R[[0, 1, 2, 4]].tolist() == logits.argmax(-1)[[0, 1, 2, 4]].tolist()
    alone = choose(TorchSampler, logits[3:4], {0: Asked(Sampling(seed=9), 0)})
    assert chosen.tokens_R[3] == alone.tokens_R[0]
    assert chosen.log_probs is not None and chosen.log_probs.counts == {1: 0, 3: 4}
    assert alone.log_probs is None


def test_log_probabilities_are_of_the_distribution_before_temperature(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    (token,) = driver.run(ask("a", PROMPT, max_tokens=1, temperature=1.9, top_k=3, seed=4, logprobs=2))["a"]
    event = driver.events["a"][0]
    logprobs = torch.log_softmax(tiny.reference_logits("qwen3", PROMPT)[-1], -1)
    assert event.logprob == pytest.approx(logprobs[token].item(), abs=1e-4)
    assert [one.token_id for one in event.top_logprobs] == logprobs.topk(2).indices.tolist()


RECORDED = [0.6524484863039106, 0.36818951554596424, 0.15403342572972178, 0.21985458675771952]


def test_forced_tokens_are_computed_with_the_prompt(make_runner: MakeRunner) -> None:
    forced = (7, 11, 13, 17, 19)
    requests = [ask(f"{n}", range(3, 12), max_tokens=n, forced_token_ids=forced, logprobs=1) for n in (3, 5, 8)]
    one_by_one = [ask(f"{n}", (*range(3, 12), *forced[:n]), max_tokens=1, logprobs=1) for n in range(5)]
    driver, alone = Driver(make_runner(prefix_cache=False)), Driver(make_runner())
    tokens = driver.run(*requests)
    assert tokens["3"] == list(forced[:3]) and tokens["5"] == list(forced) and tokens["8"][:5] == list(forced)
    assert [batch.work.new_tokens for batch in driver.launched] == [11 + 13 + 13, 1, 1, 1]
    alone.run(*one_by_one)
    for n in range(5):
        told, expected = driver.events["8"][n], alone.events[str(n)][0]
        assert told.top_logprobs[0].token_id == expected.top_logprobs[0].token_id
        assert told.top_logprobs[0].logprob == pytest.approx(expected.top_logprobs[0].logprob, abs=1e-5)


def test_an_answer_ends_at_a_forced_stop_token(make_runner: MakeRunner) -> None:
    driver = Driver(make_runner())
    driver.run(ask("a", range(3, 12), forced_token_ids=(7, 11, 13, 17), stop_token_ids=(11,)))
    assert driver.tokens("a") == [7]
    assert driver.finished("a").reason == "stop"


@pytest.mark.parametrize("quantum", [3, 10, 11])
def test_forced_tokens_may_be_cut_like_prompts(make_runner: MakeRunner, quantum: int) -> None:
    request = ask("a", range(3, 12), max_tokens=9, forced_token_ids=(7, 11, 13, 17, 19, 23), logprobs=2)
    whole, cut = Driver(make_runner()), Driver(make_runner(), quantum=quantum, depth=2)
    assert cut.run(request) == whole.run(request)
