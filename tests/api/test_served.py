"""Real models in a process of their own: the same answers as in this one, figures, and coming back after a death."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hemiola.api.engine import Engine
from hemiola.api.engine_process import sized
from hemiola.api.operations import Operations
from hemiola.api.restarts import Restarts
from hemiola.api.served import ServedEngine
from hemiola.api.stream import Stream
from hemiola.core.config import EngineConfig
from hemiola.core.device import describe_device
from hemiola.core.errors import (
    CannotFit,
    CorruptWeights,
    EngineDied,
    HemiolaError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    RequestAborted,
)
from hemiola.core.events import Final, Finished, Image, Progress, Token
from hemiola.tests.api.processes import is_alive, wait_until
from hemiola.tests.engine import models

MIB = 1 << 20
SMALL: dict[str, Any] = {"device": "cpu", "threads": 1, "memory_bytes": 64 * MIB, "host_bytes": MIB}
SOON_S = 10.0
PROMPT = models.prompt_ids(20, seed=1)


def specs(*names: str) -> list[str]:
    return [f"{name}={models.folder(name)}" for name in names]


def forever(engine: ServedEngine) -> Stream[Any]:
    """Text that goes on for longer than a test looks."""
    ids = models.prompt_ids(8, seed=time.monotonic_ns() % 2**32)
    return engine.stream_complete(ids, model="chat", max_tokens=480, ignore_eos=True, temperature=0.0)


def figures(text: str) -> dict[tuple[Any, ...], float]:
    """Samples by name and labels, as Prometheus' own client reads them."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def served() -> Iterator[ServedEngine]:
    """One for all tests that leave it as it was."""
    with ServedEngine(*specs("chat", "own", "clip"), **SMALL) as engine:
        fresh = engine.fresh_stats()
        assert (fresh.phases, fresh.running, engine.recent_steps(0.0)) == ((), {}, []), "traces of the warm-up"
        assert (fresh.caches["chat"].query_tokens, fresh.caches["chat"].cached_tokens) == (0, 0)
        yield engine
        assert [path for folder in engine.remote._folders.all for path in folder.glob("*.frames")] == []
        assert engine.remote.num_restarts == 0


def test_text_pictures_and_clips_equal_those_of_the_engine_in_this_process(served: ServedEngine) -> None:
    media = {"size": (16, 16), "num_inference_steps": 2, "seed": 3, "pixel_type": "float32"}

    def everything(engine: Engine | ServedEngine) -> list[Any]:
        text = engine.complete(PROMPT, model="chat", max_tokens=30, temperature=0.0, ignore_eos=True, logprobs=2)
        drawn = engine.chat("hi", model="chat", max_tokens=10, temperature=0.9, seed=5, n=2)
        pictures = engine.image("a fox", model="own", n=2, **media)
        clip = engine.video("a fox", model="clip", num_frames=5, **media)
        arrays = [np.frombuffer(pixels.data, np.float32) for pixels in (*(p.pixels for p in pictures), clip.pixels)]
        return [text.answers[0].tokens, [a.token_ids for a in drawn.answers], [a.text for a in drawn.answers], arrays]

    ours = everything(served)
    with Engine(*specs("chat", "own", "clip"), **SMALL) as engine:
        tokens, drawn, texts, arrays = everything(engine)
    assert [token.token_id for token in ours[0]] == [token.token_id for token in tokens]
    assert [token.logprob for token in ours[0]] == pytest.approx([token.logprob for token in tokens], abs=1e-5)
    assert ours[1:3] == [drawn, texts]
    for one, other in zip(ours[3], arrays, strict=True):
        assert one.size > 0 and np.allclose(one, other, atol=1e-5)


def test_events_of_media_come_in_order_with_their_frames(served: ServedEngine) -> None:
    stream = served.stream_image("a fox", model="own", size=(16, 16), num_inference_steps=4, seed=1)
    events = list(stream)
    denoised = [event.done for event in events if isinstance(event, Progress) and event.phase == "denoise"]
    assert denoised == sorted(denoised) and denoised[-1] == 4
    (image,) = [event for event in events if isinstance(event, Image)]
    assert len(image.pixels.data) == 16 * 16 * 3 and isinstance(events[-1], Finished) and events[-2] is image


def test_a_hundred_streams_at_once_each_get_all_of_their_own(served: ServedEngine) -> None:
    lengths = [3 + i % 17 for i in range(100)]
    streams = [
        served.stream_complete(models.prompt_ids(5, seed=i), model="chat", max_tokens=n, ignore_eos=True)
        for i, n in enumerate(lengths)
    ]
    for stream, length in zip(streams, lengths, strict=True):
        events = list(stream)
        assert [event.request_id for event in events] == list(stream.request_ids) * (length + 1)
        assert sum(isinstance(event, Token) for event in events) == length
        assert isinstance(events[-1], Finished)
    assert served.remote.num_unfinished == 0


def test_a_reader_who_does_not_read_blocks_nobody(served: ServedEngine) -> None:
    idle = served.stream_complete(PROMPT, model="chat", max_tokens=300, ignore_eos=True)
    for _ in range(3):
        assert len(served.complete(PROMPT, model="chat", max_tokens=20, ignore_eos=True).answers[0].token_ids) == 20
    assert len(idle.result(60).answers[0].token_ids) == 300
    assert sum(isinstance(event, Token) for event in idle) == 300


def test_cancelling_reaches_the_engine(served: ServedEngine) -> None:
    stream = forever(served)
    next(iter(stream))
    stream.cancel()
    with pytest.raises(RequestAborted):
        stream.result(SOON_S)
    assert served.fresh_stats().running == {}


def test_stop_strings_end_requests_in_the_engine(served: ServedEngine) -> None:
    answer = served.complete(PROMPT, model="chat", max_tokens=60, temperature=0.0, ignore_eos=True).answers[0]
    stop = answer.text[10:12]
    stopped = served.complete(PROMPT, model="chat", max_tokens=60, temperature=0.0, ignore_eos=True, stop=stop)
    assert stopped.text == answer.text[: answer.text.index(stop)] and stopped.answers[0].stop_reason == stop
    assert wait_until(lambda: served.fresh_stats().running == {})


def test_a_group_of_which_one_is_refused_runs_not_at_all(served: ServedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.remote, "_max_queue", 2)
    assert served.remote.pid is not None
    os.kill(served.remote.pid, signal.SIGSTOP)  # takes nothing out of the queue
    with pytest.raises(Overloaded):
        served.stream_complete(PROMPT, model="chat", n=3, max_tokens=400, ignore_eos=True)
    os.kill(served.remote.pid, signal.SIGCONT)
    assert wait_until(lambda: served.remote.num_unfinished == 0)
    assert served.fresh_stats().running == {} and served._streams == {}
    assert wait_until(lambda: served._texts._watched == {})
    rejected = ("hemiola_requests_rejected_total", ("code", "server_overloaded"), ("model", "chat"))
    assert figures(served.metrics_text())[rejected] == 1


# Figures


def test_recent_steps_are_those_since(served: ServedEngine) -> None:
    served.complete(PROMPT, model="chat", max_tokens=5, ignore_eos=True)
    steps = served.recent_steps(0.0)
    assert "chat" in {step.model for step in steps} and steps == sorted(steps, key=lambda step: step.end_s)
    assert served.recent_steps(steps[-3].end_s) == steps[-2:]


async def test_flushing_forgets_prefixes(served: ServedEngine) -> None:
    prompt = models.prompt_ids(40, seed=9)
    served.complete(prompt, model="chat", max_tokens=1)
    assert served.complete(prompt, model="chat", max_tokens=1).usage.cached_tokens > 30
    assert await served.flush_caches() >= 40
    assert served.complete(prompt, model="chat", max_tokens=1).usage.cached_tokens == 0


def test_it_does_what_a_server_asks_of_an_engine(served: ServedEngine) -> None:
    assert isinstance(served, Operations)
    assert served.condition() == "ready"


def test_metrics_count_what_happened(served: ServedEngine) -> None:
    before = figures(served.metrics_text())
    served.complete(models.prompt_ids(30, seed=77), model="chat", max_tokens=7, ignore_eos=True)
    served.image("a fox", model="own", size=(16, 16), num_inference_steps=2)
    stream = forever(served)
    next(iter(stream))
    stream.cancel()
    with pytest.raises(RequestAborted):
        stream.result(SOON_S)
    served.fresh_stats()
    after = figures(served.metrics_text())

    def grown(name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return after[key] - before.get(key, 0.0)

    vllm = {"model_name": "chat", "engine": "0"}
    assert grown("hemiola_prompt_tokens_total", model="chat") == grown("vllm:prompt_tokens_total", **vllm) == 30
    assert grown("vllm:generation_tokens_total", **vllm) >= 8
    assert grown("vllm:request_success_total", finished_reason="length", **vllm) == 1
    assert grown("hemiola_requests_finished_total", model="own", reason="done") == 1
    assert grown("hemiola_requests_failed_total", model="chat", code="request_aborted") == 1
    assert grown("vllm:time_to_first_token_seconds_count", **vllm) == 2
    assert grown("vllm:inter_token_latency_seconds_count", **vllm) >= 6
    assert grown("vllm:e2e_request_latency_seconds_count", **vllm) == 2
    assert grown("vllm:prefix_cache_queries_total", **vllm) >= 38
    assert grown("hemiola_steps_total", model="own", phase="denoise") >= 1
    assert after["vllm:num_requests_running", *sorted(vllm.items())] == 0
    assert after["vllm:num_requests_waiting", *sorted(vllm.items())] == 0
    assert 0 <= after["vllm:kv_cache_usage_perc", *sorted(vllm.items())] < 0.01
    assert after["hemiola_engine_ready",] == 1
    assert after["hemiola_model_info", ("modality", "video"), ("model", "clip")] == 1
    assert sum(value for key, value in after.items() if key[0] == "hemiola_arena_bytes") == 64 * MIB


# Deaths and starts that fail


def test_an_engine_that_dies_is_started_again_whatever_it_died_of(caplog: pytest.LogCaptureFixture) -> None:
    with ServedEngine(*specs("chat"), **SMALL, restarts=Restarts(pause_s=0.0)) as engine:
        for count, (die, reason) in enumerate([(_kill, "died"), (_break_the_loop, "KeyError: 'nobody'")], start=1):
            streams = [forever(engine) for _ in range(4)]
            next(iter(streams[-1]))
            before = figures(engine.metrics_text())
            pid = die(engine)
            for stream in streams:
                with pytest.raises(EngineDied, match=reason):
                    stream.result(SOON_S)
                assert sum(isinstance(event, Final) for event in stream) == 1
            assert wait_until(lambda count=count: engine.remote.num_restarts == count, SOON_S)  # type: ignore[misc]
            assert engine.condition() == "starting"
            with pytest.raises(Overloaded, match=r"^The engine is starting\.$"):
                engine.complete(PROMPT)
            assert wait_until(lambda: engine.is_ready, 60)
            assert engine.remote.pid != pid and not is_alive(pid)
            assert len(engine.complete(PROMPT, max_tokens=5, ignore_eos=True).answers[0].token_ids) == 5
            after = figures(engine.metrics_text())
            assert after["hemiola_engine_restarts_total",] == count
            assert all(after[key] >= value for key, value in before.items() if key[0].endswith("_total"))
    assert "was ended by SIGKILL while 4 requests were unfinished" in caplog.text
    assert "The engine's loop died: KeyError: 'nobody'" in caplog.text


def _kill(engine: ServedEngine) -> int:
    pid = engine.remote.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def _break_the_loop(engine: ServedEngine) -> int:
    pid = engine.remote.pid
    assert pid is not None
    engine.remote.submit(models.chat("stray", PROMPT, model="nobody"))  # no front would send this
    return pid


def test_a_model_that_is_not_there_is_named_at_once() -> None:
    with pytest.raises(ModelNotFound, match="no-such-model"):
        ServedEngine("no-such-model")


def test_broken_weights_are_named_and_nothing_is_left(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in models.folder("chat").iterdir():
        data = file.read_bytes()
        (broken / file.name).write_bytes(data[: len(data) // 2] if file.suffix == ".safetensors" else data)
    engine = ServedEngine(broken, **SMALL)
    folders = engine.remote._folders.all
    assert all(folder.exists() for folder in folders)
    with pytest.raises(CorruptWeights, match=r"model\.safetensors"):
        engine.start()
    assert not any(folder.exists() for folder in folders) and engine.remote.pid is None


def test_an_arena_that_cannot_be_had_is_an_error_of_the_start() -> None:
    engine = ServedEngine(*specs("chat"), **(SMALL | {"memory_bytes": 2**50}))
    with pytest.raises(HemiolaError, match="MiB can be had at most") as raised:
        engine.start()
    assert raised.value.code == CannotFit.code


def test_a_share_of_the_memory_is_what_it_says() -> None:
    total = describe_device("cpu").total_bytes
    assert sized(EngineConfig(device="cpu"), 0.25).memory_bytes == int(total * 0.25)
    assert sized(EngineConfig(memory_bytes=5), None).memory_bytes == 5
    with pytest.raises(InvalidRequest, match="memory_fraction"):
        sized(EngineConfig(device="cpu"), 1.5)


def test_the_front_does_without_torch() -> None:
    code = "import sys; from hemiola.api.served import ServedEngine; ServedEngine(*sys.argv[1:]).close(); "
    code += "print([name for name in ('torch', 'transformers', 'diffusers') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code, *specs("chat", "own")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
