"""The benchmarks of published sizes, run whole on a CPU with tiny shapes, and how they read what happened."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from hemiola.api.bench import BENCHES, image_gpu, limits, mixed_gpu, serve_gpu, soak_gpu, text_gpu
from hemiola.api.bench.denoisers import shape_of, step_flops
from hemiola.api.bench.timed import TimedEngine, blocks_per_s, decoding, idle_share
from hemiola.api.cli import main
from hemiola.core.errors import InvalidRequest, StepFailed
from hemiola.core.hub import resolve
from hemiola.core.step import Work
from hemiola.core.tracing import StepRecord
from hemiola.diffusion.edge import open_edge
from hemiola.llm import LanguageRunner

TEXT, IMAGE, CLIP = "dummy:llama-tiny", "dummy:z-image-tiny", "dummy:wan-tiny"
PAIR = ["--model", TEXT, "--model", IMAGE]


def record(model: str, start_s: float, end_s: float, *, blocks: int = 0, share: float = 1.0) -> StepRecord:
    phase = "denoise" if blocks else "decode"
    return StepRecord("lane", model, phase, 1, start_s, end_s, 0.0, Work(blocks=blocks), ("r",), "blocks", share)


def measured(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["bench", *arguments, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def named(report: dict[str, Any], part: str) -> dict[str, Any]:
    (found,) = [each for each in report["scenarios"] if part in each["name"]]
    return dict(found)


def assert_ratios_fit(report: dict[str, Any]) -> None:
    """A ratio is of the figure and the baseline beside it: one row had 1.00x, whatever its figure was."""
    for each in report["scenarios"]:
        quotient = each["figure"] / each["baseline"]
        assert each["ratio"] in (pytest.approx(quotient), pytest.approx(1 / quotient)), each


def test_decoding_and_prefill_beside_transformers(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rows", "2", "--context", "24", "--tokens", "8", "--repeats", "1"]
    report = measured(["text-gpu", "--model", TEXT, *sizes, "--against", "transformers"], capsys)
    step, limit = (named(report, "decode step, 2 rows x 24")[key] for key in ("figure", "baseline"))
    assert 0 < limit < step
    assert named(report, "tokens a second")["figure"] == pytest.approx(2e3 / step)
    assert 0 < named(report, "language lane at work")["figure"] <= 100
    assert_ratios_fit(report)
    assert named(report, "against transformers' generate, 2 rows")["baseline"] > 0
    assert named(report, "transformers alone: a step of generate, 1 rows")["figure"] > 0


@pytest.mark.parametrize("model", [IMAGE, CLIP, "dummy:flux-tiny"])
def test_denoise_steps_beside_diffusers(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["image-gpu", "--model", model, "--steps", "2", "--repeats", "1", "--against", "diffusers"]
    report = measured(asked, capsys)
    step = named(report, "denoise step, 64x64")
    assert 0 < step["baseline"] < step["figure"]
    (groups,) = [note for note in report["notes"] if note.startswith("groups of blocks a step: ")]
    assert float(groups.rpartition(" ")[2]) >= 1
    assert_ratios_fit(report)
    assert named(report, "against diffusers")["figure"] == step["figure"]


def test_both_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    models = ["--model", TEXT, "--model", IMAGE]
    sizes = ["--rows", "2", "--context", "24", "--tokens", "24", "--repeats", "1"]
    report = measured(["mixed-gpu", *models, *sizes], capsys)
    text, images, both = (named(report, part)["figure"] for part in ("text keeps", "images keep", "sum of both"))
    assert both == pytest.approx(text + images) and text > 0 and images > 0
    assert mixed_gpu.NO_SHARES in report["notes"], "notes of shares contradicted each other"
    assert not any("of the SMs" in note for note in report["notes"])
    assert_ratios_fit(report)


def test_a_picture_that_ends_before_the_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end was waited for and never seen: for ever, or what was measured was text alone."""
    monkeypatch.setattr(mixed_gpu, "_MANY_STEPS", 3)
    with pytest.raises(InvalidRequest, match="the picture of 3 steps ended before the text"):
        mixed_gpu.run(repeats=1, threads=1, models=(TEXT, IMAGE), rows=(2,), context=24, tokens=64)


def test_a_mixed_load_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    models = [option for model in (TEXT, IMAGE, CLIP) for option in ("--model", model)]
    report = measured(["soak-gpu", *models, "--seconds", "1", "--context", "32", "--steps", "2"], capsys)
    assert named(report, "ended exactly once")["figure"] >= soak_gpu.NUM_TEXTS + 2 * soak_gpu.NUM_MEDIA
    assert report["ratio"] == 1


def test_a_mixed_load_that_fails_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(runner: LanguageRunner, batch: Any, slot: Any) -> None:
        raise StepFailed("broken")

    monkeypatch.setattr(LanguageRunner, "launch", launch)
    report = soak_gpu.run(repeats=1, threads=1, models=(TEXT,), seconds=0.1, context=8)
    assert report.ratio == 0
    assert any("failed: step_failed" in note for note in report.notes)


def test_a_load_of_nothing_is_no_success() -> None:
    """With no time at all nothing was asked for, and all of nothing ended well."""
    report = soak_gpu.run(repeats=1, threads=1, models=(TEXT,), seconds=0.0, context=8)
    assert report.ratio == 0


def test_bytes_of_ended_requests_are_found() -> None:
    with TimedEngine(TEXT, threads=1) as engine:
        engine.complete("Hi", max_tokens=1)
        assert soak_gpu.leaked_bytes(engine, {"gone"}) == (0, True)
        engine.composition.arena.lease(512, "gone")
        assert soak_gpu.leaked_bytes(engine, {"gone"}) == (512, True)
        engine.composition.arena._room.nbytes += 256  # a byte that nobody has
        assert soak_gpu.leaked_bytes(engine, set())[1] is False
        engine.composition.arena._room.nbytes -= 256


def test_an_engine_at_work_steps_on_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that found it busy asked for the next one at once, which the loop served before any step: for ever."""
    monkeypatch.setattr(soak_gpu, "_IDLE_WITHIN_S", 20.0)
    with TimedEngine(TEXT, threads=1) as engine:
        stream = engine.stream_complete("Hi", max_tokens=200, ignore_eos=True)
        next(iter(stream))
        assert not stream.is_done
        assert soak_gpu.leaked_bytes(engine, set(stream.request_ids)) == (0, True)
        assert engine.num_finals[stream.request_ids[0]] == 1


def test_an_engine_that_stays_at_work_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_gpu, "_IDLE_WITHIN_S", 0.05)
    with TimedEngine(TEXT, threads=1) as engine:
        stream = engine.stream_complete("Hi", max_tokens=2000, ignore_eos=True)
        with pytest.raises(TimeoutError, match=r"still at work after 0\.05 s"):
            soak_gpu.leaked_bytes(engine, set(stream.request_ids))
        stream.cancel()


def test_gaps_are_counted_while_all_rows_decode() -> None:
    found = decoding([[0.0, 1.0, 2.0, 3.0, 4.0], [1.5, 2.0, 3.0, 4.0, 5.0, 9.0]])
    assert found.window == (2.0, 4.0)
    assert found.gaps_ms == (1e3,) * 4
    assert found.tokens_per_s == pytest.approx(1.0)
    with pytest.raises(InvalidRequest, match="tokens"):
        decoding([[0.0, 1.0], [2.0, 3.0]])


def test_idle_time_and_speed_are_read_from_the_trace() -> None:
    records = [
        record("a", 0.0, 0.25),
        record("b", 0.0, 1.0, blocks=3),
        record("a", 0.5, 0.75),
        record("b", 1.5, 2.0, blocks=3),
    ]
    assert idle_share(records, (0.0, 1.0), "a") == pytest.approx(0.5)
    assert blocks_per_s(records, (0.0, 2.0), "b") == pytest.approx(3.0)


def test_changes_of_the_share_are_told_with_what_text_did() -> None:
    shares = [(0.0, 0.64), (0.1, 0.64), (0.3, 1.0), (0.4, 1.0)]
    records = [record("images", start, start + 0.1, blocks=1, share=share) for start, share in shares]
    records.append(record("text", 0.0, 0.25))
    lines = mixed_gpu.share_timeline(records, "images", "text", (0.0, 1.0))
    assert [line.split(": ")[1] for line in lines] == [
        "images on 0.64 of the SMs (text at work)",
        "images on 1.00 of the SMs (text idle)",
    ]


def test_operations_of_a_published_denoise_step() -> None:
    """FLUX.1 at 1024 px: 123 ms at 606 TFLOP/s were measured with such a step."""
    source = resolve("dummy:flux-dev")
    flops = step_flops(source, shape_of(open_edge(source.path), 1024, 1024, 1, 512))
    assert flops / 1e12 == pytest.approx(0.123 * 606, rel=0.01)


def test_bytes_of_a_decode_step() -> None:
    with TimedEngine(TEXT, threads=1) as engine:
        source = engine.loads.served[0]
        weights, embeddings, per_token = 1_868_416 * 4, 6144 * 128 * 4, 2 * 2 * 1 * 64 * 4
        assert limits.decode_bytes(engine, source, 0, 0) == weights - embeddings
        assert limits.decode_bytes(engine, source, 3, 8) == weights - embeddings + 3 * 8 * per_token


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["text", "--context", "5"], ["'text' takes no '--context'", "none of these"]),
        (["text-gpu", "--seconds", "5"], ["takes no '--seconds'", "--context"]),
        (["text-gpu", "--model", TEXT, "--against", "vllm"], ["vllm", "transformers"]),
        (["image-gpu", "--model", IMAGE, "--against", "vllm"], ["vllm", "diffusers"]),
        (["text-gpu", "--model", IMAGE], ["'--model'", "one text model and no media models", "text: none"]),
        (["image-gpu", "--model", TEXT], ["'--model'", "no text models and one media model", "media: none"]),
        (["text-gpu", "--model", TEXT, "--model", IMAGE], ["no media models", f"media: {IMAGE}"]),
        (["image-gpu", "--model", TEXT, "--model", IMAGE], ["no text models", f"text: {TEXT}"]),
        (["mixed-gpu", "--model", TEXT], ["one text model and one media model", "media: none"]),
        (["serve-gpu", "--model", TEXT], ["one text model and one or more media models", "media: none"]),
        (["text-gpu", "--model", TEXT, "--tokens", "1"], ["'--tokens': 1. The least is 3"]),
        (["mixed-gpu", *PAIR, "--context", "8", "--tokens", "2"], ["'--tokens': 2. The least is 3"]),
        (["serve-gpu", *PAIR, "--context", "8", "--tokens", "1"], ["'--tokens': 1. The least is 2"]),
        (["serve-gpu", *PAIR, "--context", "8", "--rows", "257"], ["'--rows': 257. Allowed: 256 at most"]),
        (["text-gpu", "--model", TEXT, "--context", "1000000"], ["'--context': 1000000. Allowed: ", TEXT]),
        (["mixed-gpu", *PAIR, "--context", "1000000"], ["'--context': 1000000. Allowed: "]),
        (["serve-gpu", *PAIR, "--context", "1000000"], ["'--context': 1000000. Allowed: "]),
        (["soak-gpu", *PAIR, "--context", "1000000"], ["'--context': 1000000. Allowed: "]),
        (["soak-gpu", *PAIR, "--context", "1"], ["'--context': 1. The least is 2"]),
        (["image-gpu", "--model", IMAGE, "--size", "10x10"], ["'--size': 10x10"]),
        (["soak-gpu", *PAIR, "--context", "8", "--size", "10x10"], ["'--size': 10x10"]),
        (["image-gpu", "--model", "dummy:nothing"], ["dummy:nothing", "dummy:flux-dev"]),
    ],
)
def test_mistakes_are_named_before_anything_is_loaded(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("hemiola.api.compose.build", load)
    monkeypatch.setattr("hemiola.api.bench.serve_gpu.running_server", load)
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


@pytest.mark.parametrize("bench", [["text-gpu", "--model", TEXT], ["mixed-gpu", *PAIR]])
def test_more_rows_than_can_decode_together_are_refused_before_there_are_prompts(
    bench: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object) -> None:
        raise AssertionError("prompts are built")

    monkeypatch.setattr(f"hemiola.api.bench.{bench[0].replace('-', '_')}.fresh_prompts", build)
    assert main(["bench", *bench, "--rows", "4096", "--context", "24", "--tokens", "8", "--repeats", "1"]) == 2
    assert "'--rows': 4096. Allowed: 512 at most, of 32 tokens each" in capsys.readouterr().err


def test_published_shapes_are_the_defaults() -> None:
    modules = {
        "text-gpu": text_gpu,
        "image-gpu": image_gpu,
        "mixed-gpu": mixed_gpu,
        "serve-gpu": serve_gpu,
        "soak-gpu": soak_gpu,
    }
    assert {name for name in BENCHES if name.endswith("-gpu")} == set(modules)
    for module in modules.values():
        models: tuple[str, ...] = module.run.__kwdefaults__["models"]
        assert all(resolve(model).origin == "shape" and not model.endswith("-tiny") for model in models)
