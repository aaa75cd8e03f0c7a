"""The page at `/`: that it needs nothing from elsewhere, and that it works in a real browser with a real engine.

The browser is the system's Chromium, where there is one. Pictures of the page are left in `out/`.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hemiola.api.engine import Engine
from hemiola.api.http.app import create_app
from hemiola.api.http.page import STATIC
from hemiola.api.http.settings import Settings
from hemiola.core import timeline
from hemiola.tests.api.http.media_server import serving
from hemiola.tests.api.listening import listening

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

CHROMIUM = next((path for path in map(Path, ("/usr/bin/chromium", "/usr/bin/chromium-browser")) if path.exists()), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# The files


def texts() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in STATIC.iterdir()}


def test_nothing_comes_from_elsewhere() -> None:
    addresses = [
        (name, found)
        for name, text in texts().items()
        for found in re.findall(r"(?:https?:)?//[\w.-]+\.[\w/.-]+", re.sub(r"^\s*//.*$", "", text, flags=re.M))
        if "www.w3.org/2000/svg" not in found  # a name, not an address
    ]
    assert addresses == []


def test_every_part_that_is_named_is_there() -> None:
    files = texts()
    named = {name for text in files.values() for name in re.findall(r"[\"'](?:/page/|\./)([\w.]+)[\"']", text)}
    assert named <= set(files), named - set(files)
    assert set(files) - named == {"index.html"}


def test_colours_of_steps_are_those_of_drawn_timelines() -> None:
    code = texts()["timeline.js"]
    table = re.search(r"const COLOURS = \{(.*?)\}", code, re.S)
    others = re.search(r"const OTHERS = \[(.*?)\]", code)
    assert table is not None and others is not None
    colours = dict(re.findall(r'"([\w/]+)": "(#\w+)"', table[1]))
    assert colours == {f"{quantum}/{phase}": colour for (quantum, phase), colour in timeline.COLOURS.items()}
    assert tuple(re.findall(r"#\w+", others[1])) == timeline.OTHER_COLOURS


def test_the_page_is_open_to_everybody_and_allows_nothing_from_elsewhere(tmp_path: Path) -> None:
    with serving(tmp_path, api_keys=("secret",)) as server:
        page = server.http.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert server.http.head("/").status_code == 200
        for name, media_type in (
            ("main.js", "text/javascript"),
            ("style.css", "text/css"),
            ("icon.svg", "image/svg+xml"),
        ):
            part = server.http.get(f"/page/{name}")
            assert (part.status_code, part.headers["content-type"].partition(";")[0]) == (200, media_type)
            assert server.http.get(f"/page/{name}", headers={"if-none-match": part.headers["etag"]}).status_code in (
                200,
                304,
            )
        for name in ("none.js", "..%2F__init__.py", "__init__.py", "index.html"):
            assert server.http.get(f"/page/{name}").status_code in (401, 404)
        assert server.http.get("/v1/steps").status_code == 401


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the demo models."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("page"))
    with Engine("demo", threads=1) as engine, listening(create_app(engine, settings)) as url:
        yield url


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Opens the page, and in the end checks that nothing went wrong in it or was asked of anybody else."""
    wrong: list[str] = []
    contexts = []

    def open_it(path: str = url, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if is_complaint(message) else None)
        page.on("request", lambda r: None if r.url.startswith((path, "blob:", "data:")) else wrong.append(r.url))
        page.goto(path)
        page.wait_for_selector("#ideas button")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert wrong == []


def is_complaint(message: Any) -> bool:
    """Whether the console shows an error, other than that the server refused something."""
    return message.type == "error" and not message.text.startswith("Failed to load resource")


def wait_until(page: Any, is_so: str, timeout_s: float = 120.0) -> None:
    """Waits for an expression to be true; the page's own policy forbids the browser to evaluate it in a loop."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(is_so):
        assert time.monotonic() < deadline, f"never came true: {is_so}"
        time.sleep(0.05)


def wait_until_idle(page: Any) -> None:
    wait_until(page, "document.querySelectorAll('.answer[aria-busy=true]').length === 0")


def send(page: Any, mode: str, text: str, **options: str) -> None:
    page.check(f"input[name=mode][value={mode}]", force=True)
    if options and page.get_attribute("#options-toggle", "aria-expanded") == "false":
        page.click("#options-toggle")
    for name, value in options.items():
        page.fill(f"#options input[name={name}]", value)
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def num_coloured(page: Any, colour: str) -> int:
    """Pixels of the timeline that have this colour, or nearly so, as at the edges of narrow blocks."""
    count: int = page.evaluate(
        """(colour) => {
          const canvas = document.getElementById("timeline");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          let count = 0;
          for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] > 128 && colour.every((value, c) => Math.abs(data[i + c] - value) < 30)) count++;
          return count;
        }""",
        [int(colour[i : i + 2], 16) for i in (1, 3, 5)],
    )
    return count


@needs_chromium
def test_text_a_picture_and_a_clip_are_made_at_once_and_their_steps_are_seen(
    open_page: Callable[..., Any], root: Path
) -> None:
    out = root / "out"
    out.mkdir(exist_ok=True)
    page = open_page(viewport={"width": 1280, "height": 1240}, color_scheme="light")
    page.screenshot(path=out / "page_welcome.png")
    page.click("text=All of it at once")
    page.wait_for_selector(".making progress")
    wait_until(page, "[...document.querySelectorAll('.making progress')].some((bar) => bar.value > 50)")
    page.screenshot(path=out / "page_running.png")
    wait_until_idle(page)
    wait_until(page, "document.querySelector('.answer video').readyState >= 2")
    assert len(page.inner_text(".answer-text")) > 20
    assert re.search(r"\d+ tokens", page.inner_text(".answer .facts"))
    assert page.evaluate("document.querySelector('.answer img').naturalWidth") == 128
    assert page.evaluate("document.querySelector('.answer video').videoWidth") == 96
    time.sleep(1.2)  # the timeline draws a moment behind
    page.screenshot(path=out / "page.png")
    page.check("input[name=span][value='30']", force=True)
    time.sleep(0.2)
    page.click("#pause")
    for quantum, phase in (("tokens", "decode"), ("blocks", "denoise"), ("blocks", "decode")):
        assert num_coloured(page, timeline.COLOURS[quantum, phase]) > 50, phase
    facts = re.fullmatch(r"(\d+) steps · (\d+) turns · (\d+) % busy", page.inner_text("#timeline-facts"))
    assert facts is not None and int(facts[1]) > 40 and int(facts[2]) > 3
    assert page.locator("#timeline-names div").count() >= 4


@needs_chromium
def test_it_is_all_there_on_a_phone_in_the_dark(open_page: Callable[..., Any], root: Path) -> None:
    page = open_page(
        viewport={"width": 390, "height": 844},
        device_scale_factor=2,
        is_mobile=True,
        has_touch=True,
        color_scheme="dark",
    )
    send(page, "image", "a red fox in the snow", num_inference_steps="4", seed="7")
    wait_until_idle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert "seed 7" in page.inner_text(".answer .facts")
    page.click("#options-toggle")
    time.sleep(0.5)
    page.screenshot(path=root / "out" / "page_phone.png")


@needs_chromium
def test_a_conversation_goes_on_and_can_be_stopped_by_key(open_page: Callable[..., Any], url: str) -> None:
    page = open_page()
    asked: list[Any] = []
    page.on("request", lambda r: asked.append(r.post_data_json) if r.url.endswith("/chat/completions") else None)
    send(page, "chat", "Hello! My name is Mia.")
    wait_until_idle(page)
    send(page, "chat", "What is my name?")
    wait_until_idle(page)
    assert [message["role"] for message in asked[1]["messages"]] == ["user", "assistant", "user"]
    assert asked[1]["messages"][1]["content"] == page.locator(".answer-text").first.inner_text()
    send(page, "image", "a castle", num_inference_steps="200")
    page.wait_for_selector(".making progress")
    page.keyboard.press("Escape")
    wait_until_idle(page)
    assert page.locator(".answer").last.inner_text().strip() == "Stopped."
    assert page.locator(".frame").count() == 0


@needs_chromium
def test_a_clip_that_is_stopped_is_deleted(open_page: Callable[..., Any], url: str) -> None:
    page = open_page()
    send(page, "video", "a red ball", num_inference_steps="200")
    page.wait_for_selector(".making progress")
    page.click(".answer button:has-text('Stop')")
    wait_until_idle(page)
    deadline = time.monotonic() + 10
    while any(job["prompt"] == "a red ball" for job in httpx.get(f"{url}/v1/videos").json()["data"]):
        assert time.monotonic() < deadline, "the job is still there"
        time.sleep(0.05)


@needs_chromium
def test_what_is_wrong_is_shown_where_it_was_asked(open_page: Callable[..., Any]) -> None:
    page = open_page()
    send(page, "video", "a red ball", size="20x20")
    wait_until_idle(page)
    assert "multiples of 16" in page.inner_text(".answer [role=alert]")
    send(page, "image", "a castle", n="11")  # the browser itself says that this is too many
    assert page.locator(".answer").count() == 1
    assert page.evaluate("document.querySelector('#options input[name=n]').validity.rangeOverflow")


@needs_chromium
def test_a_key_is_asked_for_where_one_is_needed(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path, api_keys=("secret",)) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key", "secret")
        page.press("#key", "Enter")
        page.wait_for_selector("#ideas button")
        assert page.locator("#modes label:visible").all_inner_texts() == ["Image", "Video"]
        send(page, "image", "fox", n="2")
        wait_until_idle(page)
        assert page.locator(".answer img").count() == 2
        assert page.evaluate("sessionStorage.getItem('hemiola-key')") == "secret"
        page.close()
