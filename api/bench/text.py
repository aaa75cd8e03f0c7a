"""Tokens per second of the chat model through the engine, against transformers' generate with the same weights."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ..engine import Engine
from .report import Report, in_turn, machine_name, rate, seconds

MODEL = "hemiola-tiny-chat"
NUM_STREAMS = 8
PROMPT_LEN = 64
NUM_TOKENS = 96


def run(*, repeats: int, threads: int) -> Report:
    """Eight streams against one by one and against one batch of eight, and a single stream."""
    with Engine(MODEL, threads=threads) as engine:
        torch.set_num_threads(threads)
        source = engine.loads.served[0]
        model = AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32).eval()
        rng = random.Random(0)
        rounds = iter(range(10**6))

        def prompts(count: int) -> list[list[int]]:
            """Fresh ones for every run, so that nothing is found in the prefix cache."""
            next(rounds)
            return [[rng.randrange(300, 5000) for _ in range(PROMPT_LEN)] for _ in range(count)]

        def ours(count: int) -> float:
            ids = prompts(count)
            return count * NUM_TOKENS / seconds(lambda: _serve(engine, ids))

        def one_by_one(count: int) -> float:
            ids = prompts(count)
            return count * NUM_TOKENS / seconds(lambda: _generate_each(model, ids))

        def batched() -> float:
            ids = prompts(NUM_STREAMS)
            return NUM_STREAMS * NUM_TOKENS / seconds(lambda: _generate(model, ids))

        eight, eight_alone, eight_batched, single, single_alone = in_turn(
            [
                lambda: ours(NUM_STREAMS),
                lambda: one_by_one(NUM_STREAMS),
                batched,
                lambda: ours(1),
                lambda: one_by_one(1),
            ],
            repeats,
        )
    unit = "tokens/s"
    scenarios = (
        rate(f"{NUM_STREAMS} streams against generate one by one", eight, unit, eight_alone, 4.0),
        rate(f"{NUM_STREAMS} streams against generate in one batch", eight, unit, eight_batched, 1.1),
        rate("one stream against generate", single, unit, single_alone, 1.2),
    )
    return Report("text", machine_name(), "float32", threads, scenarios)


def _serve(engine: Engine, prompts: Sequence[Sequence[int]]) -> None:
    streams = [engine.stream_complete(ids, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True) for ids in prompts]
    for stream in streams:
        assert len(stream.result().answers[0].token_ids) == NUM_TOKENS


def _generate_each(model: Any, prompts: Sequence[Sequence[int]]) -> None:
    for prompt in prompts:
        _generate(model, [prompt])


def _generate(model: Any, prompts: Sequence[Sequence[int]]) -> None:
    with torch.inference_mode():
        ids = torch.tensor(prompts)
        done = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NUM_TOKENS,
            min_new_tokens=NUM_TOKENS,
            do_sample=False,
        )
    assert done.shape == (len(prompts), PROMPT_LEN + NUM_TOKENS)
