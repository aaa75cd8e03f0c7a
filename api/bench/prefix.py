"""Prompt tokens computed with the prefix cache against without; the time saved is reported beside."""

import random
from collections.abc import Callable, Sequence

from ..engine import Engine
from .report import Report, Scenario, machine_name, seconds

MODEL = "hemiola-tiny-chat"
Ids = list[int]
Round = list[Ids]  # prompts that are asked at once


def run(*, repeats: int, threads: int) -> Report:
    """Counting is exact, so one pass does; `repeats` is taken for uniformity."""
    del repeats
    scenarios: list[Scenario] = []
    with (
        Engine(MODEL, threads=threads, prefix_cache=True) as cached,
        Engine(MODEL, threads=threads, prefix_cache=False) as plain,
    ):
        for name, load, target in LOADS:
            rounds = load(random.Random(name))  # no load finds what another left in the cache
            _ask(plain, [[[7] * 64]])  # warm-up
            _ask(cached, [[[7] * 64]])
            with_cache, without = _ask(cached, rounds), _ask(plain, rounds)
            scenarios.append(Scenario(name, with_cache[0], "tokens", without[0], without[0] / with_cache[0], target))
            scenarios.append(
                Scenario(f"  time: {name}", with_cache[1], "s", without[1], without[1] / with_cache[1], None)
            )
    return Report("prefix", machine_name(), "float32", threads, tuple(scenarios))


def _ask(engine: Engine, rounds: Sequence[Round]) -> tuple[int, float]:
    """Prompt tokens computed, and seconds."""
    computed = 0

    def all_rounds() -> None:
        nonlocal computed
        for prompts in rounds:
            streams = [engine.stream_complete(ids, max_tokens=1, temperature=0.0, ignore_eos=True) for ids in prompts]
            for stream in streams:
                usage = stream.result().usage
                computed += usage.prompt_tokens - usage.cached_tokens

    took = seconds(all_rounds)
    return computed, took


def _ids(rng: random.Random, count: int) -> Ids:
    return [rng.randrange(300, 5000) for _ in range(count)]


def conversation(rng: random.Random) -> list[Round]:
    """Three turns of 1,000 tokens, each prompt the whole conversation so far."""
    turns = [_ids(rng, 1000) for _ in range(3)]
    return [[[token for turn in turns[: i + 1] for token in turn]] for i in range(3)]


def shared_system_prompt(rng: random.Random) -> list[Round]:
    """40 completions that share the first 800 of 1,000 tokens, 8 at a time."""
    shared = _ids(rng, 800)
    prompts = [shared + _ids(rng, 200) for _ in range(40)]
    return [prompts[i : i + 8] for i in range(0, 40, 8)]


def document(rng: random.Random) -> list[Round]:
    """10 questions, one after the other, on a document that is 98 % of each prompt."""
    text = _ids(rng, 1960)
    return [[text + _ids(rng, 40)] for _ in range(10)]


def simultaneous(rng: random.Random) -> list[Round]:
    """10 requests at once with one prefix of 500 tokens and 36 of their own."""
    shared = _ids(rng, 500)
    return [[shared + _ids(rng, 36) for _ in range(10)]]


LOADS: tuple[tuple[str, Callable[[random.Random], list[Round]], float], ...] = (
    ("conversation, 3 turns of 1,000", conversation, 1.95),
    ("40 prompts sharing 800 of 1,000", shared_system_prompt, 4.4),
    ("10 questions on one document", document, 8.0),
    ("10 at once sharing 500 of 536", simultaneous, 6.0),
)
