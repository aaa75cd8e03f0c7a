"""The sample programs run on the demo models, and do what they are samples of."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import hemiola as hm
from samples.programs import extraction
from samples.programs.best_of_n import approval, best_of_n
from samples.programs.picture_book import picture_book
from samples.programs.refinement import refine, share_of
from samples.programs.storyboard import cut_together, storyboard
from samples.programs.tools import WEATHER, assistant


def test_the_picture_book_is_written_and_drawn(demo: hm.Engine, tmp_path: Path) -> None:
    book = picture_book.on(demo).run("a fox", num_scenes=2, steps=1).raise_for_errors()
    asked, told, *_ = book.messages()
    assert "a fox" in asked["content"] and told == {"role": "assistant", "content": book["story"]}
    assert book["story"] and book["mood"] in ("calm", "funny", "sad")
    assert book["prompt"] == [scene["prompt"] for scene in book.forks] and all(book["prompt"])
    book.export(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("index.html", "run.json", "trace.json", "trace.svg"),
        *("clip.mp4", "picture-0.png", "picture-1.png"),
    }
    by_name = {(node.name, node.branch): node for node in book.trace().nodes}
    for branch in "01":
        picture, clip = by_name["picture", branch], by_name["clip", ""]
        assert picture.inputs == (by_name["prompt", branch].idx,) and picture.idx not in clip.inputs


def test_the_best_of_several_drafts_is_the_one_that_the_judges_like(demo: hm.Engine) -> None:
    run = best_of_n.on(demo).run("a red lighthouse", n=3, steps=1).raise_for_errors()
    verdicts = [approval(judge.scores("verdict")) for judge in run.forks]
    assert run["prompt"] == run["drafts"][verdicts.index(max(verdicts))]
    assert run.messages()[-1] == {"role": "assistant", "content": run["prompt"]}
    assert run["picture"].image.size == (128, 128)


@pytest.mark.parametrize(("enough", "num_rounds"), [(0.0, 1), (1.1, 3)])
def test_refining_ends_when_it_is_good_enough_and_keeps_the_best(
    demo: hm.Engine, enough: float, num_rounds: int
) -> None:
    run = refine.on(demo).run("apple", "red", enough=enough, rounds=3, steps=2).raise_for_errors()
    pictures = [node.result.result().value for node in run.nodes if node.kind == "image"]
    shares = [share_of("red", picture.image) for picture in pictures]
    assert len(pictures) == num_rounds and len(run.messages()) == 2 * num_rounds
    assert run["best_picture"] is pictures[shares.index(max(shares))]
    asked = [message["content"] for message in run.messages() if message["role"] == "user"]
    assert all(f"Only {share:.0%} " in ask for share, ask in zip(shares, asked[1:], strict=False))


def test_the_share_of_a_colour_is_that_of_its_pixels() -> None:
    image = Image.new("RGB", (4, 2), (200, 190, 10))
    image.paste((200, 20, 10), (0, 0, 1, 2))
    assert (share_of("red", image), share_of("green", image), share_of("blue", image)) == (0.25, 0.0, 0.0)


@pytest.mark.parametrize("city", ["Oslo", "Rome"])
def test_the_assistant_looks_the_weather_up_and_tells_it(demo: hm.Engine, city: str) -> None:
    run = assistant.on(demo).run(f"What is the weather in {city}?").raise_for_errors()
    _, call, result, answer = run.messages()
    assert call["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": f'{{"city": "{city}"}}'}
    assert json.loads(result["content"])["weather"] == WEATHER[city][0]
    assert city in answer["content"] and str(WEATHER[city][1]) in answer["content"] and "picture" not in run


def test_the_assistant_draws_in_the_program_that_it_answers_in(demo: hm.Engine) -> None:
    run = assistant.on(demo).run("Draw a red fox in the snow.", steps=1).raise_for_errors()
    call = run.messages()[1]["tool_calls"][0]["function"]
    assert call["name"] == "generate_image" and "fox" in call["arguments"]
    by_hand = demo.image(json.loads(call["arguments"])["prompt"], num_inference_steps=1, seed=1)
    assert np.array_equal(np.asarray(run["picture"].image), np.asarray(by_hand.image))


def test_the_assistant_is_told_when_a_function_fails(demo: hm.Engine) -> None:
    run = assistant.on(demo).run("What is the weather in Madrid?").raise_for_errors()
    assert run.messages()[2]["content"] == "Error: nothing is known of Madrid" and run["answer"]


def test_extraction_makes_records_of_a_file_and_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    people = tmp_path / "people.txt"
    people.write_text(extraction.PEOPLE.read_text())
    monkeypatch.setattr(sys, "argv", ["extraction.py", str(people), "--output", str(tmp_path / "out.jsonl")])
    extraction.main()
    assert "5 of 6 lines" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[1]["values"] == {"person": {"name": "Maria Rossi", "age": 52, "city": "Rome"}}
    assert "fits Person" in rows[5]["error"] and "extraction.py:" in rows[5]["error"]
    kept = tmp_path / "out.results.jsonl"
    assert len(kept.read_text().splitlines()) == 5
    people.write_text(people.read_text().replace("Nobody knows anything about this line.", "Eva, 30, lives in Bonn."))
    extraction.main()
    assert "6 of 6 lines" in capsys.readouterr().out and len(kept.read_text().splitlines()) == 6


def test_a_storyboard_becomes_one_clip(demo: hm.Engine, tmp_path: Path) -> None:
    run = storyboard.on(demo).run("a fox", 2, frames=5, steps=1).raise_for_errors()
    film = cut_together(run["clip"])
    assert np.array_equal(film.array, np.concatenate([clip.array for clip in run["clip"]]))
    assert film.save(tmp_path / "film.mp4").stat().st_size > 0
    assert all("fox" in prompt for prompt in run["prompt"]) and len(set(run["prompt"])) == 2
