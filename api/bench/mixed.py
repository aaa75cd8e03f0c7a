"""The time between a chat's tokens alone and beside two pictures and a clip, against whole steps in between."""

import random
from itertools import pairwise
from typing import Any

from ..engine import Engine
from ..stream import Stream
from .report import Report, Scenario, cost, machine_name, percentile

MODELS = ("hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video")
NUM_TOKENS = 200


def run(*, repeats: int, threads: int) -> Report:
    """All gaps of all rounds go into one distribution per side."""
    solo, ours = _measure("deadline", repeats, threads)
    _, whole = _measure("whole-steps", repeats, threads)
    with_quantum = percentile(solo, 0.99) + 100
    scenarios = (
        Scenario("solo: time between tokens, median", percentile(solo, 0.5), "ms", percentile(solo, 0.5), 1.0, None),
        Scenario("solo: time between tokens, p99", percentile(solo, 0.99), "ms", percentile(solo, 0.99), 1.0, None),
        cost("beside media, median, against whole steps", percentile(ours, 0.5), "ms", percentile(whole, 0.5), None),
        cost("beside media, p99, against solo p99 + 100 ms", percentile(ours, 0.99), "ms", with_quantum, 1.0),
        cost("beside media, p99, against whole steps", percentile(ours, 0.99), "ms", percentile(whole, 0.99), 3.0),
    )
    return Report("mixed", machine_name(), "float32", threads, scenarios)


def _measure(policy: str, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """Milliseconds between tokens, alone and beside media, under the policy."""
    solo: list[float] = []
    beside: list[float] = []
    rng = random.Random(0)
    with Engine(*MODELS, policy=policy, threads=threads) as engine:
        _chat(engine, rng, with_media=True)  # warm-up; the cost model learns
        for _ in range(repeats):
            solo += _chat(engine, rng, with_media=False)
            beside += _chat(engine, rng, with_media=True)
    return solo, beside


def _chat(engine: Engine, rng: random.Random, *, with_media: bool) -> list[float]:
    """One chat of NUM_TOKENS; media last longer than it does."""
    media: list[Stream[Any]] = []
    if with_media:
        media = [engine.stream_image("a red apple", seed=i, num_inference_steps=60) for i in range(2)]
        media.append(engine.stream_video("a red apple moves to the right", seed=2, num_inference_steps=60))
    ids = [rng.randrange(300, 5000) for _ in range(64)]
    chat = engine.stream_complete(ids, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    chat.result()
    assert not any(stream.is_done for stream in media), "The media were done before the chat: nothing was beside it."
    for stream in media:
        stream.cancel()
        for _ in stream:
            pass
    (request_id,) = chat.request_ids
    ends = [record.end_s for record in engine.trace.records if request_id in record.request_ids]
    return [(after - before) * 1e3 for before, after in pairwise(ends)]
