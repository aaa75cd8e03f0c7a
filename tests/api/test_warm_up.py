"""What is built before the first request, and how it is told."""

from collections.abc import Iterator
from typing import Any

import pytest

from hemiola import Engine
from hemiola.api.cli import main
from hemiola.api.warm_up import line_of
from hemiola.core.errors import StepFailed
from hemiola.core.warm_up import HasWarmUps, WarmUp
from hemiola.llm import LanguageRunner

TINY = "dummy:llama-tiny"


def with_two_things_to_build(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Language models have two things to build, each of which says so."""

    def warm_ups(runner: LanguageRunner) -> Iterator[WarmUp]:
        for name, seconds in (("kernels", 12.4), ("graph of 64 rows", 0.6)):
            yield WarmUp(f"{runner.model}: {name}", seconds, lambda name=name: built.append(name))  # type: ignore[misc]

    monkeypatch.setattr(LanguageRunner, "warm_ups", warm_ups)


def test_each_thing_is_told_of_before_it_is_built_and_before_the_engine_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []
    told: list[tuple[str, int]] = []
    with_two_things_to_build(built, monkeypatch)
    with Engine(TINY, threads=1, on_line=lambda line: told.append((line, len(built)))) as engine:
        assert built == ["kernels", "graph of 64 rows"] and engine.num_built == 2
        assert told == [
            (f"Building {TINY}: kernels (about 12 s)", 0),
            (f"Building {TINY}: graph of 64 rows (about 1 s)", 1),
        ]
        assert len(engine.complete("Hi", max_tokens=2, ignore_eos=True).answers[0].token_ids) == 2


def test_what_cannot_be_built_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StepFailed("no compiler")

    monkeypatch.setattr(LanguageRunner, "warm_ups", lambda runner: [WarmUp("kernels", 1.0, fail)])
    with pytest.raises(StepFailed, match="no compiler"):
        Engine(TINY, threads=1)


def test_a_runner_without_anything_to_build_need_not_say_so() -> None:
    class Silent:
        model = "x"

    assert not isinstance(Silent(), HasWarmUps)
    with Engine(TINY, "dummy:z-image-tiny", threads=1) as engine:
        assert engine.num_built == 0


def test_the_first_requests_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where they run in this process too."""
    with Engine(TINY, "dummy:z-image-tiny", threads=1) as engine:
        engine._run_first_requests()
        assert len(engine.trace) == 0
        answer = engine.complete([i + 1 for i in range(24)], max_tokens=1, temperature=0.0)
        assert answer.usage.cached_tokens == 0
        assert {record.model for record in engine.trace} == {TINY}


def test_costs_are_learned_from_prompts_of_some_length_that_no_cache_has() -> None:
    with Engine(TINY, threads=1, max_batch_tokens=640) as engine:
        engine._run_first_requests()
        models = engine.composition.scheduler.costs._models
        mixed = models[engine.composition.languages[TINY].steps._served.mixed_key]
        new_tokens, _ = mixed.peak[2:4]
        assert new_tokens * 64 >= 640 / 16


@pytest.mark.parametrize("has_something", [False, True])
def test_the_command_builds_and_ends(
    has_something: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[str] = []
    if has_something:
        with_two_things_to_build(built, monkeypatch)
    assert main(["warmup", TINY, "--threads", "1"]) == 0
    said = capsys.readouterr().out
    if has_something:
        assert "Building dummy:llama-tiny: kernels (about 12 s)" in said and "Built 2 kernels and graphs" in said
    else:
        assert "There is nothing to build for these models on cpu." in said


def test_lines_say_what_and_how_long() -> None:
    nothing: Any = None
    assert line_of(WarmUp("a graph", 3.2, nothing)) == "Building a graph (about 3 s)"
