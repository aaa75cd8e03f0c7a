"""What notebooks show: pictures and clips inside the page, programs as they run. IPython need not be there."""

import base64
import io
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import hemiola as hm
from hemiola.api.programs.notebook import LiveView, show
from hemiola.api.results import Picture, VideoResult
from hemiola.core.events import Finished, Pixels
from hemiola.tests.api.programs.scripted import ScriptedCalls


def pixels(num_frames: int, height: int, width: int) -> Pixels:
    """Frames that get brighter."""
    levels = np.linspace(0, 240, num_frames).astype(np.uint8)[:, None, None, None]
    return Pixels(np.broadcast_to(levels, (num_frames, height, width, 3)).tobytes(), num_frames, height, width)


def inside(html: str) -> tuple[str, bytes]:
    """Type and content of the file inside a piece of HTML."""
    (match,) = re.findall(r'src="data:([\w/]+);base64,([\w+/=]+)"', html)
    return match[0], base64.b64decode(match[1])


def test_a_picture_is_a_png_inside_the_page() -> None:
    picture = Picture(pixels(1, 24, 16), seed=5)
    kind, file = inside(picture._repr_html_())
    assert kind == "image/png" and Image.open(io.BytesIO(file)).tobytes() == picture.image.tobytes()
    assert 'title="16x24, seed 5"' in picture._repr_html_()
    result = hm.ImageResult("m", (picture, picture), ())
    assert result._repr_html_().count("<img") == 2


@pytest.mark.parametrize(("height", "width", "kind"), [(24, 16, "video/mp4"), (15, 17, "image/webp")])
def test_a_clip_plays_inside_the_page_whatever_its_sides(height: int, width: int, kind: str) -> None:
    clip = VideoResult("m", pixels(6, height, width), 8, 0, Finished("x", "done"))
    found, file = inside(clip._repr_html_())
    assert found == kind
    if kind == "video/mp4":
        with av.open(io.BytesIO(file)) as container:
            assert len([*container.decode(video=0)]) == 6 and container.streams.video[0].average_rate == 8
        return
    moving: Any = Image.open(io.BytesIO(file))
    assert moving.size == (width, height) and moving.n_frames == 6


@hm.program
def book(s: hm.State) -> None:
    s += hm.user("?")
    s += hm.assistant(hm.gen("story"))
    s += hm.gen_image("picture", s["story"])
    for fork in s.fork(2):
        fork += hm.user("dragon" if fork.branch == "1" else "fox")
        fork += hm.gen("line", n=2)


def answers(kind: str, prompt: Any, options: dict[str, Any]) -> str | Exception:
    return RuntimeError("no <dragons>") if "dragon" in str(prompt) else "Once <upon>"


def test_a_view_grows_with_what_comes() -> None:
    view = LiveView()
    seen = []
    for event in book.on(ScriptedCalls(answers)).stream():
        view.take(event)
        seen.append(view._repr_html_())
    assert "Once &lt;upon&gt;" in seen[-1] and "Once <upon>" not in seen[-1]
    assert "data:image/png" in seen[-1] and not any("data:image/png" in html for html in seen[:3])
    assert "no &lt;dragons&gt;" in seen[-1] and 'class="error"' in seen[-1]
    assert "line [0]" in seen[-1] and seen[-1].count("Once &lt;upon&gt;") == 3
    assert "story: Once <upon>" in repr(view)


def test_progress_is_a_bar() -> None:
    view = LiveView()
    view.take(hm.ProgramEvent("progress", "picture", done=3, total=8))
    assert '<progress max="8" value="3">' in view._repr_html_()


def test_without_a_notebook_text_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    run = book.on(ScriptedCalls(answers)).stream().show()
    lines = capsys.readouterr().out.splitlines()
    assert "story: Once <upon>" in lines and "line [0]: Once <upon> [1] Once <upon>" in lines
    assert any(line.startswith("line [1]: 'line' (test_notebook.py:") for line in lines) and len(lines) == 4
    assert run["story"] == "Once <upon>"


def test_a_name_that_comes_again_is_shown_again_and_an_answer_that_is_asked_for_again_is_told() -> None:
    said = iter(["one", "two", "many", "7"])

    @hm.program
    def counting(s: hm.State) -> None:
        for _ in range(2):
            s += hm.user("?")
            s += hm.assistant(hm.gen("word"))
        s += hm.assistant(hm.gen_int("number", retries=1))

    events = list(counting.on(ScriptedCalls(lambda *_: next(said))).stream())
    file, view = io.StringIO(), LiveView()
    show(events, lambda: None, file)
    assert file.getvalue() == "word: one\nword: two\nnumber: many; again: 7\n"
    for event in events:
        view.take(event)
    assert repr(view) == "word: one\nword: two\nnumber: 7"
    assert [event.kind for event in events if event.name == "number"] == [
        *("started", "text", "started", "text", "finished"),
    ]


def test_texts_that_come_at_once_are_printed_one_after_the_other() -> None:
    def text(branch: str, text: str) -> hm.ProgramEvent:
        return hm.ProgramEvent("text", "line", branch, text=text)

    file = io.StringIO()
    said = []
    events = [
        *(text("0", "a "), text("1", "x "), text("0", "b"), text("1", "y"), text("2", "p")),
        *(hm.ProgramEvent("finished", "line", "1", value="x y"), hm.ProgramEvent("finished", "line", "0", value="a b")),
        *(text("2", " q"), hm.ProgramEvent("finished", "line", "2", value="p q")),
    ]

    def noting() -> Iterator[hm.ProgramEvent]:
        for event in events:
            yield event
            said.append(file.getvalue())

    show(noting(), lambda: None, file)
    assert said[0] == "line [0]: a " and said[2] == said[4] == "line [0]: a b"
    assert said[6] == "line [0]: a b\nline [1]: x y\nline [2]: p"
    assert said[-1] == "line [0]: a b\nline [1]: x y\nline [2]: p q\n"


def test_in_a_notebook_one_output_is_updated_and_ends_as_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda what: shown.append(what._repr_html_()))

    def display(what: Any, display_id: bool) -> Any:
        assert display_id
        shown.append(what._repr_html_())
        return handle

    ipython = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=object()), display=SimpleNamespace(display=display)
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    stream = book.on(ScriptedCalls(answers)).stream()
    stream._ipython_display_()
    assert len(shown) >= 3 and shown[-1] == stream.run._repr_html_()


async def test_a_stream_is_shown_while_a_loop_runs_as_notebooks_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert book.on(ScriptedCalls(answers)).stream().show()["story"] == "Once <upon>"
