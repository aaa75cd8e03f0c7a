"""A program over many items: how many at a time, who fails, and going on from a file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import hemiola as hm
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.programs.scripted import ScriptedCalls

ITEMS = [{"animal": animal} for animal in ("heron", "dragon", "fox")]


@hm.program
def card(s: hm.State, animal: str) -> None:
    s += hm.user("Draw ", animal)
    s += hm.assistant(hm.gen("prompt"))
    s += hm.gen_image("picture", s["prompt"])
    s.fork()[0].add(hm.gen("title"))


def answers(kind: str, prompt: Any, options: dict[str, Any]) -> str | Exception:
    return RuntimeError("no dragons") if "dragon" in str(prompt) else f"about {str(prompt)[-8:]}"


def test_items_come_back_in_order_and_one_that_fails_fails_alone() -> None:
    heron, dragon, fox = card.on(ScriptedCalls(answers)).run_batch(ITEMS)
    assert heron["picture"].image.size == (16, 16) and fox.error is None
    assert fox.run is not None and fox.forks == [{**fox.values, "title": fox.run.forks[0]["title"]}]
    assert isinstance(dragon.error, hm.NodeFailed) and dragon.values == {}
    assert dragon.run is not None and dragon.run.errors[0] is dragon.error, "what was done until then can be looked at"
    with pytest.raises(hm.NodeFailed):
        dragon["picture"]


async def test_only_so_many_run_at_a_time() -> None:
    running: list[int] = []
    most: list[int] = []

    @hm.program
    async def one(s: hm.State, i: int) -> None:
        running.append(i)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.remove(i)

    await one.on(ScriptedCalls(answers)).arun_batch([{"i": i} for i in range(10)], max_concurrency=3)
    assert max(most) == 3 and len(most) == 10


def test_it_goes_on_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out" / "cards.jsonl"
    first = ScriptedCalls(answers)
    before = card.on(first).run_batch(ITEMS, results=path)
    assert [json.loads(line)["arguments"]["animal"] for line in path.read_text().splitlines()] == ["heron", "fox"]
    picture = before[0]["picture"]
    assert isinstance(picture, Path) and picture.is_file() and picture.parent.name == "cards_files"

    second = ScriptedCalls(lambda *_: "now there are")
    after = card.on(second).run_batch(ITEMS, results=path)
    assert [asked.prompt[0]["content"] for asked in second.asked if asked.kind == "chat"] == 2 * ["Draw dragon"]
    assert [item.values for item in after[::2]] == [item.values for item in before[::2]]
    assert [item.forks for item in after[::2]] == [item.forks for item in before[::2]]
    assert after[0].run is None and after[1]["prompt"] == "now there are"


def test_other_arguments_are_run_anew_and_a_line_that_was_cut_off_too(tmp_path: Path) -> None:
    path = tmp_path / "cards.jsonl"
    card.on(ScriptedCalls(answers)).run_batch(ITEMS[:1], results=path)
    path.write_text(path.read_text() + '{"index": 1, "argu')
    calls = ScriptedCalls(answers)
    card.on(calls).run_batch([{"animal": "heron"}, {"animal": "fox"}], results=path)
    assert len(calls.prompts("image")) == 1
    card.on(calls).run_batch([{"animal": "swan"}, {"animal": "fox"}], results=path)
    assert len(calls.prompts("image")) == 2
    assert len(path.read_text().splitlines()) == 3


def test_files_of_other_arguments_are_left_alone_and_lost_files_are_made_again(tmp_path: Path) -> None:
    """Files were once called after the item's index alone: another item there overwrote them."""
    path = tmp_path / "cards.jsonl"
    calls = ScriptedCalls(answers)
    ((heron,), (swan,)) = (card.on(calls).run_batch([{"animal": animal}], results=path) for animal in ("heron", "swan"))
    assert heron["picture"] != swan["picture"] and heron["picture"].is_file() and swan["picture"].is_file()
    assert heron.forks[0]["picture"] == heron["picture"], "what a fork has from before is one file"
    heron["picture"].unlink()
    (again,) = card.on(calls).run_batch([{"animal": "heron"}], results=path)
    assert again.run is not None and again["picture"].is_file()
    assert len(calls.prompts("image")) == 3


def test_failed_items_are_tried_again_each_time_and_a_whole_line_without_an_end_too(tmp_path: Path) -> None:
    path = tmp_path / "cards.jsonl"
    for _ in range(2):
        calls = ScriptedCalls(answers)
        batch = card.on(calls).run_batch(ITEMS, results=path)
        assert list(batch.errors) == [1] and len(path.read_text().splitlines()) == 2
    assert len(calls.prompts("image")) == 0, "only the dragon was asked for"
    path.write_text(path.read_text().removesuffix("\n"))
    card.on(calls).run_batch(ITEMS, results=path)
    assert len(calls.prompts("image")) == 1 and len(path.read_text().splitlines()) == 2


def test_the_bar_tells_of_items_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    card.on(ScriptedCalls(answers)).run_batch(ITEMS, progress=True)
    assert "items, 1 failed" in capsys.readouterr().out
    card.on(ScriptedCalls(answers)).run_batch(ITEMS)
    assert capsys.readouterr().out == ""


def test_mistakes_are_named(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello\n")
    with pytest.raises(InvalidRequest, match="Line 1 of"):
        card.on(ScriptedCalls(answers)).run_batch(ITEMS, results=other)
    with pytest.raises(InvalidRequest, match="max_concurrency"):
        card.on(ScriptedCalls(answers)).run_batch(ITEMS, max_concurrency=0)
    with pytest.raises(InvalidRequest, match="Item 1 has an argument"):
        unsayable: list[dict[str, Any]] = [{"animal": "heron"}, {"animal": object()}]
        card.on(ScriptedCalls(answers)).run_batch(unsayable, results=tmp_path / "new.jsonl")


@pytest.mark.parametrize("items", [["heron"], [("animal", "heron")], {"animal": "heron"}, [{1: "heron"}]])
def test_items_are_arguments_by_name(items: Any) -> None:
    calls = ScriptedCalls(answers)
    with pytest.raises(InvalidRequest, match=r"Invalid item 0: .* Allowed: the program's arguments by name"):
        card.on(calls).run_batch(items)
    assert not calls.asked


@pytest.mark.parametrize("max_concurrency", ["2", 1.5, None, True])
def test_concurrency_is_a_number(max_concurrency: Any) -> None:
    with pytest.raises(InvalidRequest, match="Invalid 'max_concurrency' of run_batch"):
        card.on(ScriptedCalls(answers)).run_batch(ITEMS, max_concurrency=max_concurrency)


@pytest.mark.parametrize("results", ["", 5, "{folder}", "{folder}/file/deeper.jsonl"])
def test_a_file_that_cannot_be_written_is_known_before_anything_runs(tmp_path: Path, results: Any) -> None:
    (tmp_path / "file").write_text("")
    calls = ScriptedCalls(answers)
    path = results.format(folder=tmp_path) if isinstance(results, str) else results
    with pytest.raises(InvalidRequest, match="Invalid 'results': "):
        card.on(calls).run_batch(ITEMS, results=path)
    assert not calls.asked


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_one_error_not_a_group() -> None:
    with pytest.raises(OSError, match="No space left"):
        say.on(ScriptedCalls(lambda *_: "x")).run_batch([{"what": "x"}], results=Path("/dev/full"))


@hm.program
def say(s: hm.State, what: str) -> None:
    s += hm.user(what)
    s += hm.assistant(hm.gen("said"))


def test_odd_line_ends_in_values_do_not_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"
    odd = "a\u2028b\x85c\x0bd\re"
    for _ in range(2):
        calls = ScriptedCalls(lambda *_: odd)
        (item,) = say.on(calls).run_batch([{"what": odd}], results=path)
        assert item["said"] == odd
    assert not calls.asked, "it was read from the file"
