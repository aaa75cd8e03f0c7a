"""The sample programs run on the demo models, and do what they are samples of."""

from pathlib import Path

import pytest
from PIL import Image

import hemiola as hm
from samples.programs.best_of_n import approval, best_of_n
from samples.programs.picture_book import picture_book, write
from samples.programs.refinement import refine, share_of


def test_the_picture_book_is_written_and_drawn(demo: hm.Engine, tmp_path: Path) -> None:
    book = picture_book.on(demo).run("a heron", num_scenes=2, steps=1).raise_for_errors()
    assert "heron" in book["story"] and book["mood"] in ("calm", "funny", "sad")
    assert book["prompt"] == [scene["prompt"] for scene in book.forks] and all(book["prompt"])
    write(book, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("story.txt", "clip.mp4", "trace.svg"),
        *("scene-1.png", "scene-2.png"),
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
