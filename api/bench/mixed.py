"""The time between a chat's tokens alone and beside two pictures and a clip, against whole steps in between."""

import random
import statistics
import time
from itertools import pairwise
from typing import Any

from ..engine import Engine
from ..stream import Stream
from .report import Report, Scenario, cost, machine_name, percentile

MODELS = ("hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video")
NUM_TOKENS = 120
QUANTUM_MS = 100


def run(*, repeats: int, threads: int) -> Report:
    """All gaps of all rounds go into one distribution per side."""
    solo, ours, ours_s = _measure("deadline", repeats, threads)
    _, whole, whole_s = _measure("round-robin", repeats, threads)
    with_quantum = percentile(solo, 0.99) + QUANTUM_MS
    scenarios = (
        Scenario("alone, median", percentile(solo, 0.5), "ms", percentile(solo, 0.5), 1.0, None),
        Scenario("alone, p99", percentile(solo, 0.99), "ms", percentile(solo, 0.99), 1.0, None),
        cost("beside media, median, against whole steps", percentile(ours, 0.5), "ms", percentile(whole, 0.5), None),
        cost("beside media, p99, against alone + 100 ms", percentile(ours, 0.99), "ms", with_quantum, 1.0),
        cost("beside media, p99, against whole steps", percentile(ours, 0.99), "ms", percentile(whole, 0.99), 3.0),
        cost("CPU time of all of it, against whole steps", ours_s, "s", whole_s, None),
    )
    return Report("mixed", machine_name(), "float32", threads, scenarios)


def _measure(policy: str, repeats: int, threads: int) -> tuple[list[float], list[float], float]:
    """Milliseconds between tokens, alone and beside media, under the policy; median CPU seconds of a round."""
    solo: list[float] = []
    beside: list[float] = []
    took: list[float] = []
    rng = random.Random(0)
    with Engine(*MODELS, policy=policy, threads=threads) as engine:
        _serve(engine, rng, with_media=True)  # warm-up; the cost model learns
        for _ in range(repeats):
            solo += _serve(engine, rng, with_media=False)
            start = time.process_time()
            beside += _serve(engine, rng, with_media=True)
            took.append(time.process_time() - start)
    return solo, beside, statistics.median(took)


def _serve(engine: Engine, rng: random.Random, *, with_media: bool) -> list[float]:
    """Milliseconds between the tokens of one chat, beside two pictures and a clip that are asked for first."""
    media: list[Stream[Any]] = []
    if with_media:
        media = [engine.stream_image("a red apple", seed=rng.getrandbits(32)) for _ in range(2)]
        media.append(engine.stream_video("a red apple moves to the right", seed=rng.getrandbits(32)))
    ids = [rng.randrange(300, 5000) for _ in range(64)]
    chat = engine.stream_complete(ids, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    for stream in [chat, *media]:
        stream.result()
    (request_id,) = chat.request_ids
    ends = [record.end_s for record in engine.trace.records if request_id in record.request_ids]
    return [(after - before) * 1e3 for before, after in pairwise(ends)]
