"""What runs and batches leave behind: media, JSON, pages that need no other file, JSON lines, data frames."""

import base64
import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

import hemiola as hm
from hemiola.api.programs.page import values_html
from hemiola.core.errors import InvalidRequest
from hemiola.core.events import Usage
from hemiola.tests.api.programs.scripted import ScriptedCalls

EVIL = "<script>alert('x')</script> & \"quotes\""


@hm.program
def book(s: hm.State, animal: str) -> None:
    s += hm.user("A story of ", animal)
    s += hm.assistant(hm.gen("story"))
    s += hm.gen_video("clip", s["story"])
    for scene in s.fork(2):
        scene += hm.user("Go on.")
        scene += hm.assistant(hm.gen("line"))
        scene += hm.gen_image("picture", scene["line"])
        scene += hm.gen_image("pair", scene["line"], n=2)
    if animal == "dragon":
        s += hm.gen_image("portrait", "dragon")


def answers(kind: str, prompt: Any, options: dict[str, Any]) -> str | Exception:
    return RuntimeError(f"no dragons {EVIL}") if prompt == "dragon" else f"{EVIL} {len(prompt)}"


class Page(HTMLParser):
    """What a browser would see: the tags with their attributes, and the text outside of styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def sources(self, tag: str) -> list[str]:
        return [str(attributes["src"]) for name, attributes in self.tags if name == tag]


def decoded(uri: str, mime_type: str) -> bytes:
    assert uri.startswith(f"data:{mime_type};base64,")
    return base64.b64decode(uri.split(",", 1)[1])


def test_a_run_becomes_a_folder_with_media_json_and_a_page(tmp_path: Path) -> None:
    run = book.on(ScriptedCalls(answers)).run("heron")
    assert run.export(tmp_path / "out" / "book", title=f"A book {EVIL}") == tmp_path / "out" / "book"
    folder = tmp_path / "out" / "book"
    pictures = [f"{i}-{name}.png" for i in (0, 1) for name in ("picture", "pair-0", "pair-1")]
    assert {path.name for path in folder.iterdir()} == {
        *("index.html", "run.json", "trace.json", "trace.svg", "clip.mp4"),
        *pictures,
    }
    assert all(Image.open(folder / name).size == (16, 16) for name in pictures)
    told = json.loads((folder / "run.json").read_text())
    assert told["values"] == {"story": run["story"], "clip": {"$file": "clip.mp4"}}
    assert told["messages"] == run.messages()
    assert [set(fork["values"]) for fork in told["forks"]] == 2 * [{"line", "picture", "pair"}]
    assert told["forks"][1]["values"]["pair"] == [{"$file": "1-pair-0.png"}, {"$file": "1-pair-1.png"}]
    assert told["forks"][1]["messages"] == run.forks[1].messages()[2:]
    assert len(json.loads((folder / "trace.json").read_text())) == len(run.nodes)


def test_the_page_is_escaped_and_needs_nothing_else(tmp_path: Path) -> None:
    run = book.on(ScriptedCalls(answers)).run("dragon")
    page = Page((run.export(tmp_path, title=f"A book {EVIL}") / "index.html").read_text())
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object"}
    attributes = [pair for _, attrs in page.tags for pair in attrs.items()]
    addresses = [value for key, value in attributes if key in ("src", "href", "xlink:href")]
    assert len(addresses) == 7 and all(str(address).startswith("data:") for address in addresses)
    assert "@import" not in page.text and not re.search(r"url\((?!data:)", page.text)
    assert f"A book {EVIL}" in page.text and run["story"] in page.text
    assert f"no dragons {EVIL}" in page.text and "portrait" in page.text, "what failed is told"
    for source in page.sources("img"):
        assert Image.open(io.BytesIO(decoded(source, "image/png"))).size == (16, 16)
    with av.open(io.BytesIO(decoded(page.sources("video")[0], "video/mp4"))) as clip:
        assert clip.streams.video[0].width == 16


def test_a_fork_shows_what_it_adds_and_a_run_everything() -> None:
    run = book.on(ScriptedCalls(answers)).run("heron")
    whole, fork = Page(run._repr_html_()), Page(run.forks[1]._repr_html_())
    assert len(whole.sources("img")) == 6 and len(whole.sources("video")) == 1
    assert len(fork.sources("img")) == 3 and fork.sources("video") == []
    assert run.forks[1]["line"] in fork.text and "A story of" not in fork.text
    assert "<script>" not in run._repr_html_()


def test_scores_and_lists_are_shown(demo: hm.Engine) -> None:
    @hm.program
    def choose(s: hm.State) -> None:
        s += hm.user("What is the mood of this story?")
        s += hm.gen("drafts", n=2, max_tokens=4, temperature=1.0, seed=1)
        s.keep("drafts", 0)
        s += hm.user("Which mood?")
        s.select("mood", ["calm", "<wild>"])

    run = choose.on(demo).run()
    page = Page(run._repr_html_())
    meters = [float(str(attributes["value"])) for tag, attributes in page.tags if tag == "meter"]
    assert len(meters) == 2 and max(meters) == 1.0 and min(meters) < 1.0
    assert "<wild>" in page.text and sum(tag == "li" for tag, _ in page.tags) == 2


def test_the_choice_that_gained_most_by_the_prompt_is_shown_with_what_it_gained() -> None:
    choices = (hm.Score("a", (-1.0,), (), (-2.0,)), hm.Score("b", (-5.0,), (), (-9.0,)))
    html = values_html({"x": "b"}, {"x": hm.Scores("m", choices, Usage())})
    assert re.findall(r'value="([\d.]+)".*?>(-?[\d.]+)</td></tr>', html) == [("0.050", "1.00"), ("1.000", "4.00")]
    assert "what the prompt adds" in html


def test_an_unresolved_choice_and_plain_text_are_exported_too(tmp_path: Path) -> None:
    @hm.program
    def plain(s: hm.State, n: int) -> None:
        s += "Once "
        s += hm.gen("next", n=n)

    one = plain.on(ScriptedCalls(lambda *_: "upon")).run(1)
    several = plain.on(ScriptedCalls(lambda *_: "upon")).run(2)
    assert "Once upon" in Page((one.export(tmp_path / "one") / "index.html").read_text()).text
    told = json.loads((several.export(tmp_path / "several") / "run.json").read_text())
    assert (told["values"], told["text"]) == ({"next": ["upon", "upon"]}, None)


def test_names_that_are_one_to_file_systems_are_several_files(tmp_path: Path) -> None:
    names = ["a b", "a_b", "A/B", "long" * 100, "long" * 101]

    @hm.program
    def pictures(s: hm.State) -> None:
        for i, name in enumerate(names):
            s += hm.gen_image(name, f"picture {i}")
        s += hm.gen_image("0-c", "a picture")
        s.fork()[0].add(hm.gen_image("c", "another"))

    run = pictures.on(ScriptedCalls(answers)).run()
    for _ in range(2):  # the same names again
        run.export(tmp_path)
        record = json.loads((tmp_path / "run.json").read_text())
        own = [record["values"][name]["$file"] for name in (*names, "0-c")]
        files = [*own, record["forks"][0]["values"]["c"]["$file"]]
        assert len({file.casefold() for file in files}) == len(files)
        assert {path.name for path in tmp_path.glob("*.png")} == set(files)
    assert own[0] == "a_b.png"


def test_what_was_said_before_a_failure_is_shown(tmp_path: Path) -> None:
    @hm.program
    def failing(s: hm.State) -> None:
        s += hm.user("Hello there")
        s += hm.assistant(hm.gen("hello"))
        s += hm.user("A number?")
        s += hm.assistant(hm.gen_int("number", minimum=1000))
        s += hm.user("Thanks")

    run = failing.on(ScriptedCalls(answers)).run()
    run.export(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    assert [message["content"] for message in record["messages"]] == ["Hello there", run["hello"], "A number?"]
    assert record["text"] is None and "$error" in record["values"]["number"]
    page = (tmp_path / "index.html").read_text()
    assert "A number?" in page and "Expected exactly one number" in page and "Thanks" not in page


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_turn_that_cannot_be_told_does_not_hinder_the_rest(tmp_path: Path, is_kept: bool) -> None:
    @hm.program
    def odd(s: hm.State) -> None:
        s += hm.user("Hello there")
        s += hm.gen_image("picture", "a fox")
        if is_kept:
            s += hm.gen("drafts", n=2)
            s.keep("drafts", 7)
        else:
            s += hm.user("Look: ", s["picture"])

    odd.on(ScriptedCalls(answers)).run().export(tmp_path)
    assert [said["content"] for said in json.loads((tmp_path / "run.json").read_text())["messages"]] == ["Hello there"]


def test_lines_of_a_run_are_its_branches(tmp_path: Path) -> None:
    run = book.on(ScriptedCalls(answers)).run("dragon")
    rows = [json.loads(line) for line in run.to_jsonl(tmp_path / "run.jsonl").read_text().splitlines()]
    assert [row["branch"] for row in rows] == ["", "0", "1"]
    assert "no dragons" in rows[0]["values"]["portrait"]["$error"]
    assert (tmp_path / "run_files" / rows[2]["values"]["picture"]["$file"]).is_file()


def test_a_batch_is_exported_whether_it_ran_or_was_read(tmp_path: Path) -> None:
    @hm.program
    def card(s: hm.State, animal: str) -> None:
        if animal == "<dragon>":
            raise ValueError("No <dragons>.")
        s += hm.user("Draw ", animal)
        s += hm.assistant(hm.gen("prompt"))
        s += hm.gen_image("picture", s["prompt"])
        s.fork()[0].add(hm.gen("title"))

    items = [{"animal": "heron"}, {"animal": "<dragon>"}]
    for name in ("ran", "read"):
        batch = card.on(ScriptedCalls(lambda *_: EVIL)).run_batch(items, results=tmp_path / "cards.jsonl")
        assert isinstance(batch, hm.Batch) and list(batch.errors) == [1]
        folder = batch.export(tmp_path / name)
        page = Page((folder / "index.html").read_text())
        assert len(page.sources("img")) == 1 and page.sources("img")[0].startswith("data:image/png")
        assert "No <dragons>." in page.text and "animal='<dragon>'" in page.text
        rows = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
        assert [row["error"] for row in rows] == [None, "No <dragons>."]
        assert (folder / "media" / rows[0]["values"]["picture"]["$file"]).is_file()
        lines = batch.to_jsonl(tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["arguments"] for line in lines] == items
        assert (tmp_path / f"{name}_files" / "0-picture.png").is_file()


def test_values_that_json_has_no_word_for_are_named(tmp_path: Path) -> None:
    @hm.program
    def odd(s: hm.State) -> None:
        s += hm.gen_image("picture", "x")
        s["size"] = hm.Variable(s["picture"].nodes, lambda: {1, "a", object()})

    with pytest.raises(InvalidRequest, match=r"'run.json' cannot hold"):
        odd.on(ScriptedCalls(answers)).run().export(tmp_path)


def test_data_frames_have_a_row_for_each_branch_or_item() -> None:
    pytest.importorskip("pandas")
    run = book.on(ScriptedCalls(answers)).run("heron")
    frame = run.to_pandas()
    assert list(frame.index) == ["", "0", "1"] and set(frame.columns) == {"story", "clip", "line", "picture", "pair"}
    assert frame.loc["1", "line"] == run.forks[1]["line"]

    @hm.program
    def card(s: hm.State, animal: str, prompt: str) -> None:
        s += hm.user(animal)
        s += hm.assistant(hm.gen("prompt"))

    batch = card.on(ScriptedCalls(answers)).run_batch([{"animal": a, "prompt": "p"} for a in ("heron", "fox")])
    frame = batch.to_pandas()
    assert list(frame.columns) == ["animal", "arguments.prompt", "prompt", "error"]
    assert list(frame["prompt"]) == [item["prompt"] for item in batch]
    assert len(hm.Batch().to_pandas()) == 0


def test_without_pandas_one_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = book.on(ScriptedCalls(answers)).run("heron")
    for convert in (run.to_pandas, hm.Batch().to_pandas):
        with pytest.raises(InvalidRequest, match="pip install pandas"):
            convert()
