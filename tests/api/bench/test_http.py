"""The benchmarks over HTTP start a server, compare, and leave no process behind."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from hemiola.api.bench import http, serve_gpu
from hemiola.core.errors import InvalidRequest, StepFailed


def test_it_compares_a_server_with_the_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "NUM_STREAMS", 2)
    monkeypatch.setattr(http, "NUM_TOKENS", 4)
    before = _children()
    report = http.run(repeats=1, threads=1)
    many, one = report.scenarios
    assert (many.target, one.target) == (http.TARGET, None)
    assert all(s.figure > 0 and s.baseline > 0 and s.ratio == s.figure / s.baseline for s in report.scenarios)
    assert _children() == before


def test_chats_beside_pictures_and_clips_are_compared_with_chats_alone() -> None:
    before = _children()
    models = ["dummy:llama-tiny", "dummy:z-image-tiny", "dummy:wan-tiny"]
    report = serve_gpu.run(repeats=1, threads=1, models=models, rows=(2,), context=40, tokens=8, steps=2)
    names = [scenario.name.partition(",")[0] for scenario in report.scenarios]
    assert names == ["to the first token"] * 2 + ["between tokens"] * 2
    assert all(s.figure > 0 and s.baseline > 0 and s.target is None for s in report.scenarios)
    pictures, clips = (note for note in report.notes if "meanwhile" in note)
    assert "dummy:z-image-tiny made" in pictures and "dummy:wan-tiny made" in clips
    assert "made 0" not in pictures
    assert all(re.fullmatch(r".* meanwhile, in (?!0\.0)[0-9.]+ s at work", note) for note in (pictures, clips))
    assert _children() == before


@pytest.mark.parametrize("models", [["dummy:llama-tiny"], ["dummy:wan-tiny"]])
def test_chats_without_pictures_or_pictures_without_chats_are_nothing_to_compare(models: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="Allowed: "):
        serve_gpu.run(repeats=1, threads=1, models=models)


def test_a_picture_that_fails_meanwhile_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures would be those of chats beside nothing."""

    def make(media: Any, model: str, kind: str) -> None:
        raise StepFailed("broken")

    monkeypatch.setattr(serve_gpu._Media, "_make", make)
    before = _children()
    with pytest.raises(StepFailed, match="broken"):
        serve_gpu.run(
            repeats=1, threads=1, models=["dummy:llama-tiny", "dummy:z-image-tiny"], rows=(1,), context=40, tokens=4
        )
    assert _children() == before


def _children() -> set[str]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}
