"""Sixty callers at once, some of whom change their minds: the engine as it is used, with its threads and real time."""

import random
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from hemiola.api.engine import Engine
from hemiola.api.front.terms import CallTerms
from hemiola.api.stream import Stream
from hemiola.api.text_worker import TextWorker
from hemiola.core.errors import EngineDied, RequestAborted
from hemiola.core.events import Failed, Final, Image, Token, Video
from hemiola.core.memory import Need
from hemiola.core.request import TextRequest
from hemiola.diffusion import media

from . import models
from .models import prompt_ids, text_front
from .rig import KINDS, alone

NUM_CALLS = 60


@pytest.fixture
def small() -> Any:
    """An engine whose arena is too small for all at once."""
    specs = [f"{name}={models.folder(name)}" for name in KINDS]
    with Engine(*specs, memory_bytes=1 << 20, host_bytes=1 << 20, threads=1, max_batch_tokens=64) as engine:
        yield engine


def call(engine: Engine, number: int, rng: random.Random) -> Stream[Any]:
    """One of the many things that may be asked."""
    kind = rng.choice(("chat", "chat", "complete", "complete", "image", "own", "flux", "clip"))
    if kind == "chat":
        options: dict[str, Any] = {"seed": number, "temperature": 1.0, "ignore_eos": True}
        return engine.stream_chat(rng.choice(("hello", "hello there")), model="chat", max_tokens=20, **options)
    if kind == "complete":
        ids = prompt_ids(60, rng.randint(0, 2))[: rng.randint(1, 60)] + prompt_ids(5, number)
        return engine.stream_complete(ids, model="chat", max_tokens=rng.randint(1, 60), temperature=0.0)
    options = {"num_inference_steps": rng.randint(1, 3), "guidance_scale": rng.choice((0.0, 2.0)), "seed": number}
    options |= {"size": rng.choice(((16, 16), (32, 16))), "pixel_type": "float32"}
    prompt = rng.choice(("a fox", "two foxes"))
    if kind == "clip":
        return engine.stream_video(prompt, model="clip", num_frames=5, **options)
    return engine.stream_image(prompt, model=kind, n=rng.choice((1, 1, 2)), **options)


def assert_ended_once(stream: Stream[Any]) -> None:
    finals = [event for event in stream if isinstance(event, Final)]
    assert sorted(event.request_id for event in finals) == sorted(stream.request_ids)


def assert_nothing_is_held(engine: Engine) -> None:
    """Asked on the engine's own thread, once it is idle."""
    found: list[Any] = []
    done = threading.Event()

    def look(scheduler: Any) -> None:
        made = engine.composition
        try:
            made.languages["chat"].kv_cache.prefixes.flush()  # type: ignore[union-attr]
            made.check()
            found.append(scheduler.is_idle)
            found.append([o for o in made.arena.ledger.owners if not o.startswith("condition:")])
            found.append(made.arena.can_lease(Need(general=(made.arena.nbytes,))))
            found.append(made.arena.host.copies)
        finally:
            done.set()

    engine._loop.call(look)
    assert done.wait(10)
    assert found == [True, [], True, {}]
    assert not engine._streams and not engine._texts._watched and not engine._loop._unfinished


def assert_as_alone(stream: Stream[Any]) -> None:
    """Each of the stream's requests gave what it gives when nothing else runs."""
    for request in stream.requests:
        events = [event for event in stream._events if event.request_id == request.id]
        expected = alone(request)
        if isinstance(request, TextRequest):
            assert tuple(event.token_id for event in events if isinstance(event, Token)) == expected.tokens
        else:
            (made,) = [event for event in events if isinstance(event, Image | Video)]
            assert np.abs(media.to_numpy(made.pixels) - expected.pixels).max() <= 1e-5


def test_sixty_calls_with_changes_of_mind_end_once_each_and_leave_nothing(small: Engine) -> None:
    rng = random.Random(60)
    streams: list[Stream[Any]] = []
    aborted: set[int] = set()
    lock = threading.Lock()

    def ask(numbers: range, seed: int) -> None:
        mine = random.Random(seed)
        for number in numbers:
            stream = call(small, number, mine)
            with lock:
                streams.append(stream)
            if mine.random() < 0.3:
                time.sleep(mine.choice((0.0, 0.0, 0.01, 0.05)))
                stream.cancel()
                with lock:
                    aborted.add(id(stream))

    threads = [threading.Thread(target=ask, args=(range(i, NUM_CALLS, 4), rng.random())) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(streams) == NUM_CALLS and len(aborted) >= 10
    num_failed = 0
    for stream in streams:
        assert_ended_once(stream)
        failure = stream.failure
        num_failed += failure is not None
        assert failure is None or (isinstance(failure, RequestAborted) and id(stream) in aborted), failure
        if failure is None:
            assert_as_alone(stream)
            stream.result(timeout=1)
    assert 5 <= num_failed <= len(aborted), "Some were aborted in time, and only those."
    assert_nothing_is_held(small)


def test_closing_ends_everybody_once_and_every_thread(small: Engine) -> None:
    rng = random.Random(8)
    streams = [call(small, number, rng) for number in range(20)]
    next(iter(streams[0]))
    small.close()
    for stream in streams:
        assert_ended_once(stream)
        assert stream.failure is None or isinstance(stream.failure, RequestAborted)
    assert not small._loop._thread.is_alive() and not small._texts._thread.is_alive()
    with pytest.raises(EngineDied, match="not running"):
        small.stream_complete([5], model="chat")


@pytest.mark.parametrize("way", ["idle", "at work", "dead"])
def test_closing_gives_the_memory_back_while_the_engine_is_still_known(small: Engine, way: str) -> None:
    arena = weakref.ref(small.composition.arena)
    rng = random.Random(8)
    streams = [call(small, number, rng) for number in range(8)]
    if way == "dead":
        small._loop.call(die)
    if way != "at work":
        for stream in streams:
            assert_ended_once(stream)
    small.close()
    assert arena() is None
    with pytest.raises(EngineDied, match="closed"):
        _ = small.composition


def die(scheduler: Any) -> None:
    raise RuntimeError("a bug")


def test_a_stop_string_that_is_seen_when_the_engine_has_gone_is_nobodys_business() -> None:
    """Telling the engine of it raised in the detokenizing thread, and nobody's end was passed on any more."""
    front = text_front("chat")
    request = front.completion_requests("hello", CallTerms(), stop="x", max_tokens=9)[0]
    told: list[Any] = []

    def finish(request_id: str) -> None:
        raise EngineDied("The engine is not running.")

    worker = TextWorker(told.append, finish)
    worker.watch(request, front)
    for token_id in front.tokenizer.encode("axb"):
        assert worker.take(Token(request.id, token_id))
    assert worker.take(Failed(request.id, RequestAborted.code, "The request was aborted."))
    worker.stop()
    assert [event.text for event in told if isinstance(event, Token)] == ["a", ""]
    assert isinstance(told[-1], Failed) and len(told) == 3


def test_the_death_of_the_engine_fails_everybody_once(small: Engine, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(9)
    streams = [call(small, number, rng) for number in range(12)]

    small._loop.call(die)
    for stream in streams:
        assert_ended_once(stream)
        failed = [event for event in stream._events if isinstance(event, Failed)]
        assert all(event.code == "engine_died" for event in failed)
    assert any(isinstance(stream.failure, EngineDied) for stream in streams)
    with pytest.raises(EngineDied, match="a bug"):
        small.stream_complete([5], model="chat")
    assert "The engine died." in caplog.text
