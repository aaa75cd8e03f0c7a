"""An engine that has served for long holds no more than one that has just warmed up."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hemiola.api.engine import Engine
from hemiola.api.prefixes import forget_prefixes
from hemiola.api.results import Completion
from hemiola.api.stream import Stream
from hemiola.core.errors import RequestAborted
from hemiola.scheduler.scheduler import Scheduler

from . import models

NUM_PROMPTS = 90


@pytest.fixture(scope="module", params=[2, 32], ids=["evicting", "ample"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With memory that is short from the first prompts on, and with room for all of them."""
    specs = [f"{name}={models.folder(name)}" for name in ("chat", "image", "clip")]
    with Engine(*specs, memory_bytes=request.param << 20, host_bytes=256 << 10, threads=1, max_batch_tokens=64) as made:
        yield made


def serve(engine: Engine, first: int) -> None:
    """Short requests with prompts that never came before, some aborted, beside pictures and a clip one after another:
    what is known of a batch is kept for its shape.
    """
    streams: list[Stream[Completion]] = []
    for number in range(first, first + NUM_PROMPTS):
        prompt = models.prompt_ids(10 + number % 30, seed=number)
        streams.append(engine.stream_complete(prompt, model="chat", max_tokens=1 + number % 5))
        if number % 5 == 0:
            streams[-1].cancel()
    for _ in range(3):
        engine.image("a fox", model="image", size="16x16", num_inference_steps=2)
    engine.video("a fox", model="clip", size="16x16", num_frames=5, num_inference_steps=2)
    for stream in streams:
        with suppress(RequestAborted):
            stream.result(60)


def held(engine: Engine) -> Counter[str]:
    """Live objects of the project's own types, but for the records of the trace and what caches are there to keep."""

    def empty(_: Scheduler) -> None:
        forget_prefixes(engine.composition)
        engine.trace.clear()

    engine._loop.ask(empty)
    gc.collect()
    types = (type(each) for each in gc.get_objects())
    return Counter(
        t.__qualname__ for t in types if t.__module__.startswith("hemiola.") and ".tests." not in t.__module__
    )


def test_nothing_of_requests_is_left_when_they_are_over(engine: Engine) -> None:
    """Once, a prefix cache that was emptied kept its nodes in the order of what goes first."""
    for warming in range(2):
        serve(engine, warming * NUM_PROMPTS)
    before = held(engine)
    for later in range(2, 5):
        serve(engine, later * NUM_PROMPTS)
    grown = held(engine) - before
    assert grown.total() < NUM_PROMPTS // 2, f"After {3 * NUM_PROMPTS} more prompts there are more of: {dict(grown)}"
