"""The command line, as people type it, on the built-in models."""

import json
import subprocess
import sys
from pathlib import Path

import av
import pytest
from PIL import Image

from hemiola.api.cli import main
from hemiola.core.hub import known_models
from hemiola.scheduler.policy import POLICIES

CHAT, IMAGE, CLIP = "hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"
QUICK = ["--steps", "2", "--threads", "1", "--seed", "3"]


def test_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fox.png"
    assert main(["image", "a red fox", "-o", str(path), *QUICK]) == 0
    assert Image.open(path).size == (128, 128)
    assert f"{path} (seed 3)" in capsys.readouterr().out


def test_python_runs_the_package_as_the_script_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There was no `python -m hemiola`. Somewhere else than in the repository, where `-m` would look first."""
    ran = [
        subprocess.run([sys.executable, "-m", "hemiola", *said], capture_output=True, text=True, cwd=tmp_path)
        for said in (["export-demo", "--help"], ["dance"])
    ]
    assert [each.returncode for each in ran] == [0, 2]
    with pytest.raises(SystemExit):
        main(["export-demo", "--help"])
    assert ran[0].stdout == capsys.readouterr().out and "usage: hemiola export-demo" in ran[0].stdout
    assert "invalid choice: 'dance'" in ran[1].stderr


def test_several_pictures_of_a_size(tmp_path: Path) -> None:
    assert main(["image", "a dog", "-n", "2", "--size", "64x96", "-o", str(tmp_path / "dog.jpg"), *QUICK]) == 0
    assert [Image.open(tmp_path / f"dog-{i}.jpg").size for i in range(2)] == [(64, 96)] * 2


def test_a_clip(tmp_path: Path) -> None:
    path = tmp_path / "fox.mp4"
    assert main(["video", "a fox moving to the right", "--frames", "5", "-o", str(path), *QUICK]) == 0
    with av.open(str(path)) as container:
        assert len(list(container.decode(video=0))) == 5


def test_one_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "What is the capital of France?", "--temperature", "0", "--threads", "1"]) == 0
    assert "Paris" in capsys.readouterr().out


def test_a_conversation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["Hi!", "Thank you!", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(said))
    assert main(["chat", "--temperature", "0", "--threads", "1"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) >= 3


def test_models_and_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"))
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("arena", "paged_attention", "weights of hemiola-tiny-chat", "cores"))


def test_models_are_shown_whole_on_pipes_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and folders were cut."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for source in known_models():
        assert any(source.name in line and str(source.path) in line for line in lines), source.name


def test_info_of_a_model_that_cannot_fit_says_how_large_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    assert main(["info", "dummy:llama-8b", "big=dummy:flux-dev", "--memory-mib", str(1 << 30)]) == 2
    said = capsys.readouterr()
    assert "8,030.3 M" in said.out and "14.96" in said.out  # GiB in bfloat16
    assert "16,870.6 M" in said.out
    assert "can be had at most" in said.err


def test_info_lists_what_memory_is_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    assert main(["info", "dummy:llama-tiny", "--memory-mib", "64"]) == 0
    shown = capsys.readouterr().out
    assert "weights of dummy:llama-tiny" in shown and "1.9 M parameters, random" in shown
    assert "64 MiB" in shown and "memory_bytes: as asked" in shown
    assert "host tier" in shown and "host_bytes: default on a CPU" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["image", "a fox", "--size", "100x100"],
        ["image", "a fox", "--max-pixels", "4096"],
        ["image", "a fox", "-n", "0"],
        ["video", "a fox", "--frames", "6"],
        ["video", "a fox", "--max-frames", "5", "--frames", "9"],
        ["chat", "hello", "--temperature", "9"],
        ["chat", "--temperature", "9"],
    ],
)
def test_values_are_checked_before_any_model_is_loaded(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong temperature was told of after the weights had been read."""

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("hemiola.api.compose.build", load)
    assert main([*arguments, "--threads", "1"]) == 2


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    """`--n 3` drew one picture with the negative prompt "3"."""
    with pytest.raises(SystemExit):
        main(["image", "a fox", "--n", "3"])
    assert "unrecognized arguments: --n 3" in capsys.readouterr().err


def test_the_help_names_all_policies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["chat", "--help"])
    assert f"order of steps: {', '.join(POLICIES)}" in " ".join(capsys.readouterr().out.split())


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", str(tmp_path), "--threads", "1"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"picture-1.png", "picture-2.png", "picture-3.png", "clip.mp4", "timeline.png"}
    assert "changed between models" in capsys.readouterr().out


def test_a_benchmark_prints_one_json_object_and_fails_below_its_targets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hemiola.api.bench.overhead.NUM_STEPS", 5)
    status = main(["bench", "overhead", "--json", "--repeats", "1"])
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"name", "machine", "dtype", "threads", "scenarios", "notes", "ratio"}
    assert set(report["scenarios"][0]) == {"name", "figure", "unit", "baseline", "ratio", "target"}
    assert report["ratio"] == min(s["ratio"] / s["target"] for s in report["scenarios"])
    assert status == (0 if report["ratio"] >= 1 else 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["image", "a fox", "--size", "100x100"], ["'--size'", "100x100", "multiples of 16"]),
        (["image", "a fox", "--steps", "0"], ["'--steps'", "got 0"]),
        (["image", "a fox", "--max-pixels", "4096"], ["'--size'", "4,096 at most ('--max-pixels')"]),
        (["image", "a fox", "-n", "0"], ["'-n'", "got 0"]),
        (["image", "a fox", "-m", "dummy:llama-tiny"], ["'--model': 'dummy:llama-tiny' makes no image. ", IMAGE]),
        (["video", "a fox", "-m", "dummy:z-image-tiny"], ["'dummy:z-image-tiny' makes no video", CLIP]),
        (["chat", "hi", "-m", CHAT, "--memory-mib", "1"], [f"KV cache of '{CHAT}'", "'--memory-mib' to 2 MiB or more"]),
        (
            ["chat", "hi", "-m", CHAT, "--memory-mib", str(1 << 30)],
            ["Lower the engine's '--memory-mib' or", "MiB in all"],
        ),
        (["image", "a fox", "--memory-mib", "1"], ["but 1024.0 KiB", "'size', or raise the engine's '--memory-mib'"]),
        (["chat", "hi", "-m", IMAGE, "-m", CLIP], [f"none of '{IMAGE}', '{CLIP}' makes text", CHAT]),
        (["chat", "hi", "-m", CHAT, "-m", "b=dummy:llama-tiny"], [f"each of '{CHAT}', 'b' makes text. Allowed: one"]),
        (["demo", "-m", "dummy:llama-tiny"], ["'dummy:llama-tiny' makes no image. Allowed: one model", IMAGE]),
        (["chat", "hello", "--device", "tpu"], ["'--device': 'tpu'. Allowed: auto, cpu"]),
        (["image", "a fox", "-m", "no-such-model"], ["no-such-model", "Looked for"]),
        (["chat", "hello", "--temperature", "9"], ["'--temperature'", "9", "<= 2"]),
        (["chat", "hello", "--policy", "chaos"], ["'--policy': 'chaos'", "deadline"]),
        (["video", "a fox", "--frames", "6"], ["'--frames': 6", "4k+1"]),
        (["image", "a fox", "-o", "no/folder/a.png"], ["no/folder", "there is no folder"]),
        (["image", "a fox", "-o", "a.docx"], ["a.docx", ".png"]),
        (["video", "a fox", "-o", "a.gif"], ["a.gif", ".mp4"]),
        (["chat", "bad \udcff"], ["not valid Unicode"]),
    ],
)
def test_mistakes_are_named(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--threads", "1"]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


GIB_1024 = "1,099,511,627,776"


@pytest.mark.parametrize(
    ("command", "option", "value", "allowed"),
    [
        ("chat hi", "--memory-mib", "-5", f"a whole number from 1 to {GIB_1024}."),
        ("chat hi", "--activation-mib", "0", f"a whole number from 1 to {GIB_1024}."),
        ("chat hi", "--threads", "0", "a whole number from 1 to 1,024."),
        ("image hi", "--threads", "1025", "a whole number from 1 to 1,024."),
        ("info", "--threads", "two", "a whole number from 1 to 1,024."),
        ("warmup", "--max-batch-tokens", "1.5", "a whole number from 1 to 1,048,576."),
        ("video hi", "--max-frames", "0", "a whole number from 1 to 65,536."),
        ("demo", "--media-sm-share", "nan", "a number above 0 and at most 1."),
        ("demo", "--seed", "x", "a whole number."),
        ("chat hi", "--temperature", "hot", "a number."),
        ("serve", "--memory-fraction", "nan", "a number above 0 and at most 1."),
        ("serve", "--memory-fraction", "0", "a number above 0 and at most 1."),
        ("serve", "--port", "70000", "a whole number from 0 to 65,535."),
        ("serve", "--port", "-1", "a whole number from 0 to 65,535."),
        ("serve", "--max-queue", "0", "a whole number from 1 to 1,048,576."),
        ("bench text-gpu", "--threads", "0", "a whole number from 1 to 1,024."),
        ("bench text-gpu", "--rows", "100000000", "a whole number from 1 to 4,096."),
        ("bench text-gpu", "--repeats", "0", "a whole number from 1 to 1,000."),
        ("bench mixed-gpu", "--share", "2", "a number above 0 and at most 1."),
        ("bench soak-gpu", "--seconds", "nan", "a number above 0 and at most 604,800."),
        ("bench soak-gpu", "--seconds", "inf", "a number above 0 and at most 604,800."),
    ],
)
def test_numbers_out_of_bounds_are_told_with_their_option_and_what_is_allowed(
    command: str, option: str, value: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN went through, MiB were told as bytes, and threads that cannot be ended in a traceback of torch."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), option, value])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith(f"argument {option}: invalid value: '{value}'. Allowed: {allowed}\n"), said
