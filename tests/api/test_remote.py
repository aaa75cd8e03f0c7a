"""The engine in a process of its own: the same answers, and loud, bounded failures when that process dies."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hemiola.api.engine import Engine
from hemiola.api.frames import PREFIX, SHARED_MEMORY
from hemiola.api.operations import Operations
from hemiola.api.remote import Restarts
from hemiola.api.served import ServedEngine
from hemiola.api.stream import Stream
from hemiola.core.errors import (
    CannotFit,
    CorruptWeights,
    EngineDied,
    HemiolaError,
    ModelNotFound,
    Overloaded,
    RequestAborted,
)
from hemiola.core.events import Final, Finished, Image, Progress, Token
from hemiola.tests.engine import models

MIB = 1 << 20
SMALL: dict[str, Any] = {"device": "cpu", "threads": 1, "memory_bytes": 64 * MIB, "host_bytes": MIB}
SOON_S = 10.0
PROMPT = models.prompt_ids(20, seed=1)
FRONT = """
import os, sys
from hemiola.api.served import ServedEngine
engine = ServedEngine(sys.argv[1], device="cpu", threads=1, memory_bytes=64 << 20, host_bytes=1 << 20)
engine.start()
stream = engine.stream_complete([5, 6, 7], max_tokens=400, ignore_eos=True)
next(iter(stream))
print(engine.remote.pid, *engine.remote._folders.all, "torch" in sys.modules, flush=True)
os.kill(os.getpid(), 9)
"""


def specs(*names: str) -> list[str]:
    return [f"{name}={models.folder(name)}" for name in names]


def forever(engine: ServedEngine | Engine, *, model: str = "chat") -> Stream[Any]:
    """Text that goes on for longer than a test looks."""
    ids = models.prompt_ids(8, seed=time.monotonic_ns() % 2**32)
    return engine.stream_complete(ids, model=model, max_tokens=480, ignore_eos=True, temperature=0.0)


def wait_until(is_so: Callable[[], bool], timeout_s: float = SOON_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that nobody has asked for its status yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def left_frames(engine: ServedEngine) -> list[Path]:
    return [path for folder in engine.remote._folders.all for path in folder.glob("*.frames")]


def kill(engine: ServedEngine) -> int:
    pid = engine.remote.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.fixture(scope="module")
def served() -> Iterator[ServedEngine]:
    """One for all tests that leave it as it was."""
    with ServedEngine(*specs("chat", "own", "clip"), **SMALL) as engine:
        yield engine
        assert left_frames(engine) == []
        assert engine.remote.num_restarts == 0


@pytest.fixture
def text_engine() -> Iterator[ServedEngine]:
    """One that may be hurt: a language model alone."""
    engine = ServedEngine(*specs("chat"), **SMALL, restarts=Restarts(max_deaths=3, pause_s=0.0))
    engine.start()
    yield engine
    engine.close()


# The same as in one process


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
    assert wait_until(lambda: left_frames(served) == [])


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


# Figures


def test_recent_steps_are_those_since(served: ServedEngine) -> None:
    served.complete(PROMPT, model="chat", max_tokens=5, ignore_eos=True)
    steps = served.recent_steps(0.0)
    assert {step.model for step in steps} >= {"chat"} and steps == sorted(steps, key=lambda step: step.end_s)
    later = served.recent_steps(steps[-3].end_s)
    assert later == steps[-2:]


def test_flushing_forgets_prefixes(served: ServedEngine) -> None:
    prompt = models.prompt_ids(40, seed=9)
    served.complete(prompt, model="chat", max_tokens=1)
    assert served.complete(prompt, model="chat", max_tokens=1).usage.cached_tokens > 30
    assert served.flush_cache() >= 40
    assert served.complete(prompt, model="chat", max_tokens=1).usage.cached_tokens == 0


def test_warming_up_leaves_no_traces() -> None:
    with ServedEngine(*specs("chat"), **SMALL) as engine:
        stats = engine.fresh_stats()
        assert stats.phases == () and stats.running == {} and stats.num_queued == 0
        assert (stats.caches["chat"].query_tokens, stats.caches["chat"].cached_tokens) == (0, 0)
        assert engine.recent_steps(0.0) == []


async def test_it_does_what_a_server_asks(served: ServedEngine) -> None:
    assert isinstance(served, Operations)
    assert served.condition() == "ready" and await served.flush_caches() >= 0


def test_metrics_count_what_happened(served: ServedEngine) -> None:
    before = figures(served.metrics_text())
    served.complete(models.prompt_ids(30, seed=77), model="chat", max_tokens=7, ignore_eos=True)
    served.image("a fox", model="own", size=(16, 16), num_inference_steps=2)
    with pytest.raises(RequestAborted):
        stream = forever(served)
        next(iter(stream))
        stream.cancel()
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
    assert sum(v for k, v in after.items() if k[0] == "hemiola_arena_bytes") == 64 * MIB


def figures(text: str) -> dict[tuple[Any, ...], float]:
    """Samples by name and labels, as Prometheus' own client reads them."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# Queues and endings


def test_who_comes_when_the_queue_is_full_is_refused_before_anything_is_sent() -> None:
    with ServedEngine(*specs("chat"), **SMALL, max_queue=3) as engine:
        running = forever(engine)
        next(iter(running))
        assert engine.remote.pid is not None
        os.kill(engine.remote.pid, signal.SIGSTOP)  # takes nothing out of the queue
        queued = [forever(engine) for _ in range(3)]
        with pytest.raises(Overloaded, match="3 requests are waiting already; at most 3 may"):
            forever(engine)
        assert engine.remote.num_unfinished == 4
        os.kill(engine.remote.pid, signal.SIGCONT)
        assert all(isinstance(next(iter(stream)), Token) for stream in queued)
        assert wait_until(lambda: engine.remote.num_queued == 0)
        more = forever(engine)
        for stream in (running, *queued, more):
            stream.cancel()
        assert ("hemiola_requests_rejected_total", ("code", "server_overloaded"), ("model", "chat")) in figures(
            engine.metrics_text()
        )


def test_a_group_of_which_one_is_refused_runs_not_at_all() -> None:
    with ServedEngine(*specs("chat"), **SMALL, max_queue=2) as engine:
        assert engine.remote.pid is not None
        os.kill(engine.remote.pid, signal.SIGSTOP)
        with pytest.raises(Overloaded):
            engine.stream_complete(PROMPT, n=3, max_tokens=400, ignore_eos=True)
        os.kill(engine.remote.pid, signal.SIGCONT)
        assert wait_until(lambda: engine.remote.num_unfinished == 0)
        assert engine.fresh_stats().running == {} and engine._streams == {}
        assert wait_until(lambda: engine._texts._watched == {})


def test_draining_lets_run_what_runs_and_takes_no_more(text_engine: ServedEngine) -> None:
    stream = text_engine.stream_complete(PROMPT, max_tokens=60, ignore_eos=True)
    next(iter(stream))
    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(text_engine.remote.drain(SOON_S)))
    thread.start()
    assert wait_until(lambda: text_engine.condition() == "draining")
    with pytest.raises(Overloaded, match="stopping"):
        text_engine.complete(PROMPT)
    assert len(stream.result(SOON_S).answers[0].token_ids) == 60
    thread.join(SOON_S)
    assert drained == [True]


def test_closing_aborts_what_runs_and_ends_the_process() -> None:
    engine = ServedEngine(*specs("chat"), **SMALL)
    engine.start()
    streams = [forever(engine) for _ in range(3)]
    next(iter(streams[0]))
    pid, folders = engine.remote.pid, engine.remote._folders.all
    engine.close()
    for stream in streams:
        with pytest.raises(RequestAborted):
            stream.result(SOON_S)
    assert pid is not None and not is_alive(pid)
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(Overloaded):
        engine.complete(PROMPT)


# Deaths


def test_a_killed_engine_fails_all_its_requests_at_once_and_comes_back(
    text_engine: ServedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    before = figures(text_engine.metrics_text())
    streams = [forever(text_engine) for _ in range(8)]
    for stream in streams:
        next(iter(stream))
    pid = kill(text_engine)
    killed_s = time.monotonic()
    for stream in streams:
        with pytest.raises(EngineDied):
            stream.result(SOON_S)
        assert sum(isinstance(event, Final) for event in stream) == 1
    assert time.monotonic() - killed_s < 2.0
    assert text_engine.condition() == "starting"
    with pytest.raises(EngineDied, match="being started again"):
        text_engine.complete(PROMPT)
    assert wait_until(lambda: text_engine.is_ready, 60)
    assert text_engine.remote.pid not in (None, pid) and not is_alive(pid)
    assert len(text_engine.complete(PROMPT, max_tokens=5, ignore_eos=True).answers[0].token_ids) == 5
    assert f"The engine process ({pid}) was ended by SIGKILL while 8 requests were unfinished" in caplog.text
    after = figures(text_engine.metrics_text())
    assert after["hemiola_requests_failed_total", ("code", "engine_died"), ("model", "chat")] == 8
    assert after["hemiola_engine_restarts_total",] == 1
    assert all(after[key] >= value for key, value in before.items() if key[0].endswith("_total"))


def test_an_engine_that_dies_again_and_again_is_given_up() -> None:
    given_up: list[HemiolaError] = []
    restarts = Restarts(max_deaths=2, pause_s=0.0)
    engine = ServedEngine(*specs("chat"), **SMALL, restarts=restarts, on_down=given_up.append)
    engine.start()
    kill(engine)
    assert wait_until(lambda: engine.remote.num_restarts == 1 and engine.is_ready, 60)
    stream = forever(engine)
    kill(engine)
    with pytest.raises(EngineDied):
        stream.result(SOON_S)
    assert wait_until(lambda: engine.condition() == "dead")
    assert wait_until(lambda: len(given_up) == 1)
    with pytest.raises(EngineDied, match="There is no engine"):
        engine.complete(PROMPT)
    with pytest.raises(EngineDied):
        engine.recent_steps(0.0)
    engine.close()


def test_pictures_of_a_killed_engine_fail_too_and_leave_no_frames() -> None:
    with ServedEngine(*specs("own"), **SMALL, restarts=Restarts(pause_s=0.0)) as engine:
        streams = [engine.stream_image("a fox", num_inference_steps=500, size=(16, 16)) for _ in range(3)]
        next(iter(streams[0]))
        (engine.remote._folders.all[0] / "1-0.frames").write_bytes(b"half a picture")
        kill(engine)
        for stream in streams:
            with pytest.raises(EngineDied):
                stream.result(SOON_S)
        assert wait_until(lambda: engine.is_ready, 60)
        assert left_frames(engine) == []
        assert engine.image("a fox", num_inference_steps=1, size=(16, 16)).image.size == (16, 16)


def test_a_loop_that_dies_inside_its_process_fails_all_and_comes_back(
    text_engine: ServedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    stream = forever(text_engine)
    next(iter(stream))
    text_engine.remote.submit(models.chat("stray", PROMPT, model="nobody"))  # no front would send this
    with pytest.raises(EngineDied, match="nobody"):
        stream.result(SOON_S)
    assert wait_until(lambda: text_engine.remote.num_restarts == 1 and text_engine.is_ready, 60)
    assert "The engine's loop died: KeyError: 'nobody'" in caplog.text
    assert text_engine.remote.num_unfinished == 0
    text_engine.complete(PROMPT, max_tokens=2)


def test_a_front_that_is_killed_takes_its_engine_with_it_and_leaves_nothing() -> None:
    """And such a front had not loaded torch."""
    front = subprocess.run(
        [sys.executable, "-c", FRONT, *specs("chat")], capture_output=True, text=True, timeout=120, check=False
    )
    assert front.returncode == -signal.SIGKILL, front.stderr
    pid, *folders, has_torch = front.stdout.split()
    assert has_torch == "False"
    assert wait_until(lambda: not is_alive(int(pid)))
    assert not any(Path(folder).exists() for folder in folders)


# Starts that fail


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
    assert any(folder.parent == SHARED_MEMORY and folder.name.startswith(PREFIX) for folder in folders)
    with pytest.raises(CorruptWeights, match="model.safetensors"):
        engine.start()
    assert not any(folder.exists() for folder in folders) and engine.remote.pid is None


def test_an_arena_that_cannot_be_had_is_an_error_of_the_start() -> None:
    with pytest.raises(HemiolaError) as raised:
        ServedEngine(*specs("chat"), **(SMALL | {"memory_bytes": 2**50})).start()
    assert raised.value.code == CannotFit.code and "MiB" in raised.value.message
    with pytest.raises(HemiolaError, match="memory_fraction"):
        ServedEngine(*specs("chat"), **SMALL, memory_fraction=1.5).start()


def test_an_engine_that_is_killed_while_it_starts_is_not_started_again() -> None:
    lines: list[str] = []
    engine = ServedEngine(*specs("chat"), **SMALL, on_line=lines.append)
    engine.begin()
    with pytest.raises(Overloaded, match="starting"):
        engine.complete(PROMPT)
    assert wait_until(lambda: bool(lines), 60)
    kill(engine)
    with pytest.raises(EngineDied, match="SIGKILL before it was ready"):
        engine.start(60)
    assert engine.remote.num_restarts == 0


def test_closing_an_engine_that_is_just_starting_ends_it() -> None:
    engine = ServedEngine(*specs("chat"), **SMALL)
    engine.begin()
    assert wait_until(lambda: engine.remote.pid is not None)
    pid = engine.remote.pid
    engine.close()
    assert pid is not None and not is_alive(pid)


def test_a_share_of_the_memory_is_what_it_says() -> None:
    total = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    fraction = 40 * MIB / (total * 1024)
    options = {name: value for name, value in SMALL.items() if name != "memory_bytes"}
    with ServedEngine(*specs("chat"), **options, memory_fraction=fraction) as engine:
        assert sum(engine.fresh_stats().arena_bytes.values()) == pytest.approx(40 * MIB, rel=0.01)


def test_deaths_long_ago_do_not_count() -> None:
    restarts = Restarts(max_deaths=2, window_s=0.5, pause_s=0.0)
    with ServedEngine(*specs("chat"), **SMALL, restarts=restarts) as engine:
        for count in (1, 2):
            kill(engine)
            assert wait_until(lambda count=count: engine.remote.num_restarts == count and engine.is_ready, 60)  # type: ignore[misc]
            time.sleep(0.5)
