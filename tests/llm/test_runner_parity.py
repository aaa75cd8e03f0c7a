"""What comes out of the runner is what the transformers library computes, however the work was cut and batched."""

from typing import Any

import pytest
import torch

from hemiola.core.memory import Arena
from hemiola.llm import LanguageRunner
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, ask

MIB = 1 << 20


def runner_of(name: str, **options: Any) -> LanguageRunner:
    return LanguageRunner("tiny", tiny.folder_of(name), Arena(24 * MIB, host_bytes=8 * MIB), **options)


@pytest.mark.parametrize("name", [*tiny.OWN, *tiny.GENERIC])
def test_64_greedy_tokens_equal_those_of_transformers(name: str) -> None:
    """In one batch with others of different lengths, prompts cut into chunks of at most 24 tokens."""
    prompts = {f"r{i}": tiny.token_ids(length, seed=i) for i, length in enumerate((37, 1, 60))}
    driver = Driver(runner_of(name), quantum=24)
    got = driver.run(*(ask(id, ids, max_tokens=64 if id == "r0" else 20) for id, ids in prompts.items()))
    for id, ids in prompts.items():
        assert got[id] == tiny.reference_greedy(name, ids, len(got[id])), id
    assert any(len(batch.states) == 3 for batch in driver.launched)
    driver.runner.kv_cache.arena.ledger.check()


@pytest.mark.parametrize("name", [*tiny.OWN, *tiny.GENERIC])
def test_log_probabilities_are_those_of_transformers_logits(name: str) -> None:
    ids = tiny.token_ids(45, seed=5)
    driver = Driver(runner_of(name), quantum=20)
    tokens = driver.run(ask("a", ids, max_tokens=6, logprobs=5))["a"]
    logits = tiny.reference_logits(name, ids + tokens)[len(ids) - 1 : -1]
    expected = torch.log_softmax(logits, -1)
    for step, event in enumerate(event for event in driver.events["a"][:-1]):
        assert abs(event.logprob - expected[step, event.token_id]) <= 1e-4
        top = expected[step].topk(5)
        assert [one.token_id for one in event.top_logprobs] == top.indices.tolist()
        assert [one.logprob for one in event.top_logprobs] == pytest.approx(top.values.tolist(), abs=1e-4)
    # The logits themselves, up to the constant that log-softmax removes.
    assert len(tokens) == 6
