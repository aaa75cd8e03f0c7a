"""The picture of a run shows each step in its phase's colour, at its time."""

from pathlib import Path

import pytest
from PIL import Image, ImageColor

from hemiola.core.step import Work
from hemiola.core.timeline import COLOURS, WIDTH, Axis, draw, most_mixed
from hemiola.core.tracing import StepRecord

DECODE = ImageColor.getrgb(COLOURS["tokens", "decode"])
DENOISE = ImageColor.getrgb(COLOURS["blocks", "denoise"])


def step(model: str, start_s: float, seconds: float, request_id: str = "r1", phase: str = "decode") -> StepRecord:
    quantum = "tokens" if phase == "decode" else "blocks"
    return StepRecord(
        "main", model, phase, 1, start_s, start_s + seconds, seconds, Work(rows=1), (request_id,), quantum
    )


def drawn(path: Path, *steps: StepRecord) -> Image.Image:
    draw(steps, path)
    with Image.open(path) as image:
        return image.convert("RGB")


def columns_with(image: Image.Image, colour: tuple[int, ...], top: int, bottom: int) -> list[int]:
    """The x of all columns that show the colour between two heights."""
    pixels = image.load()
    assert pixels is not None
    return [x for x in range(image.width) if any(pixels[x, y] == colour for y in range(top, bottom))]


def test_steps_stand_at_their_times_in_their_colours(tmp_path: Path) -> None:
    image = drawn(tmp_path / "a.png", step("chat", 5.0, 2.5), step("image", 7.5, 2.5, "r2", "denoise"))
    axis = Axis(0, 5)
    assert image.width == WIDTH
    decode, denoise = (columns_with(image, colour, 150, 210) for colour in (DECODE, DENOISE))
    assert decode[0] == pytest.approx(axis.left, abs=2) and decode[-1] == pytest.approx(axis.x(2.5), abs=2)
    assert denoise[0] == pytest.approx(axis.x(2.5), abs=2) and denoise[-1] == pytest.approx(axis.right, abs=2)


def test_steps_far_narrower_than_a_pixel_are_seen(tmp_path: Path) -> None:
    image = drawn(tmp_path / "a.png", *(step("chat", i, 1e-4) for i in range(100)))
    red, _, blue = (band.crop((300, 157, WIDTH, 158)).tobytes() for band in image.split())
    assert sum(b > r + 10 for r, b in zip(red, blue, strict=True)) >= 90


def test_a_picture_grows_with_requests_up_to_a_limit(tmp_path: Path) -> None:
    def height(num_requests: int) -> int:
        return drawn(tmp_path / "a.png", *(step("chat", i, 0.5, f"r{i}") for i in range(num_requests))).height

    assert height(1) < height(8) < height(16) == height(400)


def test_long_and_unknown_names_do_no_harm(tmp_path: Path) -> None:
    steps = [step("m" * 300, 0, 1, "r" * 300, "reticulate"), step("chat", 1, 0.0)]
    draw(steps, tmp_path / "a.png", title="A run", labels={"r" * 300: "ü" * 300})
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_the_closer_look_is_where_models_change_most() -> None:
    alone = [step("chat", i, 1) for i in range(20)]
    mixed = [step("chat" if i % 2 else "image", 20 + i, 1) for i in range(10)]
    after = [step("image", 30 + i, 1) for i in range(20)]
    assert list(most_mixed([*alone, *mixed, *after], 10)) == mixed
    assert list(most_mixed(alone[:3], 10)) == alone[:3]


@pytest.mark.parametrize("span_s", [0.003, 0.9, 7.0, 64.0, 5000.0])
def test_ticks_are_a_handful_of_round_numbers(span_s: float) -> None:
    ticks = Axis(100, 100 + span_s).ticks()
    assert 5 <= len(ticks) <= 11
    assert ticks[0] == 0 and ticks[-1] <= span_s * 1.001
