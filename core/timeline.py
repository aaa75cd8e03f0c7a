"""Draws a step trace as a picture: who was served when, a closer look at the steps, and what each phase came to.

Needs Pillow and the records of `core.tracing`, nothing else. Everything is drawn at twice the size and shrunk, so that
steps narrower than a pixel show as shades.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from PIL import Image, ImageColor, ImageDraw, ImageFont

from .tracing import StepRecord, num_switches, totals

Box = tuple[float, float, float, float]

WIDTH = 1600
MARGIN = 48
LABELS = 250  # width of the column with names, left of the time axis
MAX_REQUESTS = 16
NUM_CLOSE_STEPS = 48

PAPER, INK, SOFT, GRID, BAND = "#FCFBF8", "#1C2430", "#6A7382", "#E4E2DC", "#F1EFE8"
# Tokens are blue, pictures are warm. A `decode` is a token step or a VAE's, told apart by its quantum.
COLOURS = {
    ("tokens", "prefill"): "#1D4E9E",
    ("tokens", "decode"): "#3BA3E8",
    ("blocks", "encode"): "#8E5BD0",
    ("tokens", "encode"): "#8E5BD0",
    ("blocks", "denoise"): "#F2A033",
    ("blocks", "decode"): "#DF4F5F",
}
OTHER_COLOURS = ("#3FAE78", "#B08948", "#5C7C8A", "#C26FB2", "#8A8F98")


def draw(
    records: Iterable[StepRecord],
    path: str | Path,
    *,
    title: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Writes a PNG, 1600 pixels wide.

    Args:
        records: at least one, in any order.
        title: in place of one that counts requests and steps.
        labels: what to call requests, by id; those of one name share a row. Others are called by their id, up to a
            colon, for what a runner does for others has ids such as "encode:7".
    """
    steps = sorted(records, key=lambda step: step.start_s)
    assert steps, "nothing ran: there is no timeline to draw"
    Timeline(steps, labels or {}).paint(title).save(path)


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps seconds to pixels of the page."""

    start_s: float
    end_s: float
    left: float = MARGIN + LABELS
    right: float = WIDTH - MARGIN

    def x(self, seconds: float) -> float:
        return self.left + (seconds - self.start_s) * self.pixels_per_s

    @property
    def pixels_per_s(self) -> float:
        return (self.right - self.left) / max(self.end_s - self.start_s, 1e-9)

    def ticks(self) -> list[float]:
        """About ten round numbers of seconds since the axis's origin."""
        span = self.end_s - self.start_s
        rough = max(span, 1e-9) / 10
        power = 10.0 ** math.floor(math.log10(rough))
        gap = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        return [i * gap for i in range(int(span / gap + 1e-6) + 1)]


class Page:
    """A sheet that is drawn on in page pixels, at twice the resolution."""

    SCALE = 2

    def __init__(self, height: int) -> None:
        self._sheet = Image.new("RGB", (WIDTH * self.SCALE, height * self.SCALE), PAPER)
        self._draw = ImageDraw.Draw(self._sheet)

    def box(self, box: Box, fill: str, radius: float = 0) -> None:
        """A filled box; at least half a pixel wide, so that no step is lost."""
        left, top, right, bottom = (value * self.SCALE for value in box)
        corners = (left, top, max(right, left + 1) - 1, bottom - 1)
        self._draw.rounded_rectangle(corners, radius * self.SCALE, fill=fill)

    def polygon(self, points: Sequence[tuple[float, float]], fill: str) -> None:
        self._draw.polygon([(x * self.SCALE, y * self.SCALE) for x, y in points], fill=fill)

    def line(self, box: Box, fill: str, width: float = 1) -> None:
        self._draw.line([value * self.SCALE for value in box], fill=fill, width=round(width * self.SCALE))

    def text(self, x: float, y: float, text: str, size: float, fill: str = INK, anchor: str = "ls") -> float:
        """Writes on the baseline at `y` (anchor as in Pillow); returns the width."""
        font = ImageFont.load_default(size * self.SCALE)
        self._draw.text((x * self.SCALE, y * self.SCALE), text, fill, font, anchor)
        return self._draw.textlength(text, font) / self.SCALE

    def fitted(self, x: float, y: float, text: str, size: float, width: float, fill: str = INK) -> None:
        """The text, its middle replaced by an ellipsis if it is wider than `width`."""
        font = ImageFont.load_default(size * self.SCALE)
        kept = len(text)
        shown = text
        while kept > 4 and self._draw.textlength(shown, font) > width * self.SCALE:
            kept -= 1
            shown = f"{text[: kept - kept // 3]}…{text[len(text) - kept // 3 :]}"
        self.text(x, y, shown, size, fill)

    def finish(self) -> Image.Image:
        size = (self._sheet.width // self.SCALE, self._sheet.height // self.SCALE)
        return self._sheet.resize(size, Image.Resampling.BOX)


class Timeline:
    """The picture of a run. `steps` are sorted by start."""

    ROW = 30  # of a name
    LANE = 58  # of a model in the closer look

    def __init__(self, steps: Sequence[StepRecord], labels: Mapping[str, str]) -> None:
        self.steps = steps
        self.whole = Axis(steps[0].start_s, max(step.end_s for step in steps))
        close = most_mixed(steps, NUM_CLOSE_STEPS)
        self.close = Axis(close[0].start_s, max(step.end_s for step in close))
        self.colours = _colours(steps)
        self.models = list(dict.fromkeys((step.lane, step.model) for step in steps))
        by_name: defaultdict[str, list[StepRecord]] = defaultdict(list)
        for step in steps:
            for name in {labels.get(i, i.partition(":")[0]) for i in step.request_ids}:
                by_name[name].append(step)
        self.rows = dict(list(by_name.items())[:MAX_REQUESTS])
        self.num_hidden = len(by_name) - len(self.rows)
        self.num_requests = len({request_id for step in steps for request_id in step.request_ids})

    def paint(self, title: str | None) -> Image.Image:
        """The page, from top to bottom."""
        phases = totals(self.steps)
        requests_top = 150
        requests_bottom = requests_top + self.ROW * len(self.rows)
        close_top = requests_bottom + 120
        close_bottom = close_top + self.LANE * len(self.models)
        legend_top = close_bottom + 84
        page = Page(legend_top + 34 * ((len(phases) + 1) // 2) + 50)
        self._header(page, title)
        self._link(page, requests_top, requests_bottom, close_top, close_bottom)
        self._requests(page, requests_top)
        self._close_look(page, close_top)
        self._legend(page, legend_top)
        return page.finish()

    def _header(self, page: Page, title: str | None) -> None:
        span = self.whole.end_s - self.whole.start_s
        page.text(MARGIN, 62, title or f"{self.num_requests} requests, {len(self.steps):,} steps, one engine", 30)
        facts = [f"{_duration(span)}", f"{num_switches(self.steps):,} changes between models"]
        busy = sum(step.seconds for step in self.steps) / max(span, 1e-9) / len({step.lane for step in self.steps})
        facts.append(f"busy {min(busy, 1):.0%} of the time")
        errors = [abs(step.predicted_s / step.seconds - 1) for step in self.steps if step.predicted_s and step.seconds]
        if errors:
            facts.append(f"step times predicted within {median(errors):.0%} (median)")
        page.text(MARGIN, 94, "   ·   ".join(facts), 17, SOFT)

    def _requests(self, page: Page, top: float) -> None:
        """A row a name: pale from its first to its last step, coloured where it was being served."""
        bottom = top + self.ROW * len(self.rows)
        _grid(page, self.whole, top, bottom)
        for i, (name, steps) in enumerate(self.rows.items()):
            y = top + i * self.ROW
            page.fitted(MARGIN, y + 20, name, 15, LABELS - 20)
            page.box((self.whole.x(steps[0].start_s), y + 13, self.whole.x(steps[-1].end_s), y + 17), "#D8D6CF", 2)
            for column, colour, share in self._shades(steps):
                x = self.whole.left + column / Page.SCALE
                page.box((x, y + 4, x + 1 / Page.SCALE, y + 26), _blend(colour, share))
        if self.num_hidden:
            page.text(MARGIN, bottom + 24, f"and {self.num_hidden} more", 14, SOFT)

    def _shades(self, steps: Sequence[StepRecord]) -> Iterable[tuple[int, str, float]]:
        """Per column of the fine grid: the colour that fills most of it, and how much is filled."""
        columns: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        per_s = self.whole.pixels_per_s * Page.SCALE
        for step in steps:
            first, last = ((t - self.whole.start_s) * per_s for t in (step.start_s, step.end_s))
            for column in range(int(first), int(last) + 1):
                filled = min(last, column + 1) - max(first, column)
                columns[column][self._colour(step)] += filled
        for column, filled_by in columns.items():
            colour = max(filled_by, key=lambda each: filled_by[each])
            yield column, colour, min(1.0, sum(filled_by.values()))

    def _link(self, page: Page, top: float, bottom: float, close_top: float, close_bottom: float) -> None:
        """The part that is shown closer, and how it widens."""
        left, right = self.whole.x(self.close.start_s), self.whole.x(self.close.end_s)
        right = max(right, left + 2)
        page.box((left, top - 8, right, bottom + 8), BAND)
        corners = [(left, bottom + 8), (right, bottom + 8), (self.close.right, close_top - 8)]
        page.polygon([*corners, (self.close.left, close_top - 8)], BAND)
        page.box((self.close.left, close_top - 8, self.close.right, close_bottom + 8), BAND)

    def _close_look(self, page: Page, top: float) -> None:
        """A row a model, a box a step, in it the number of requests that share it."""
        bottom = top + self.LANE * len(self.models)
        span = self.close.end_s - self.close.start_s
        since = self.close.start_s - self.whole.start_s
        page.text(MARGIN, top - 36, "A closer look", 17)
        page.text(MARGIN, top - 15, f"{_duration(span)}, from {_duration(since)} on", 14, SOFT)
        _grid(page, self.close, top, bottom)
        page.text(self.close.right, bottom + 48, "in a box: how many requests share the step", 13, SOFT, "rs")
        for step in self.steps:
            if step.start_s < self.close.start_s or step.end_s > self.close.end_s:
                continue
            y = top + self.LANE * self.models.index((step.lane, step.model))
            left, right = self.close.x(step.start_s), self.close.x(step.end_s)
            page.box((left, y + 8, right - 1, y + self.LANE - 8), self._colour(step), 2)
            if right - left > 16:
                page.text((left + right) / 2, y + self.LANE / 2 + 5, str(step.rows), 14, "#FFFFFF", "ms")
        for i, (lane, model) in enumerate(self.models):
            y = top + i * self.LANE
            page.fitted(MARGIN, y + 28, model, 15, LABELS - 20)
            page.text(MARGIN, y + 46, f"{lane} lane", 13, SOFT)

    def _legend(self, page: Page, top: float) -> None:
        """Two columns: colour, phase, model, how many steps and how long they took."""
        column_width = (WIDTH - 2 * MARGIN) / 2
        phases = totals(self.steps)
        quanta = {(step.model, step.phase): step.quantum for step in self.steps}
        whole_s = sum(total.seconds for total in phases)
        for i, total in enumerate(phases):
            x = MARGIN + (i % 2) * column_width
            y = top + (i // 2) * 34
            page.box((x, y - 14, x + 18, y + 4), self.colours[quanta[total.model, total.phase], total.phase], 4)
            page.text(x + 30, y, total.phase, 16)
            page.fitted(x + 140, y, total.model, 15, 210, SOFT)
            page.text(x + 430, y, f"{total.num_steps:,} steps", 15, INK, "rs")
            page.text(x + 515, y, _duration(total.seconds), 15, INK, "rs")
            page.text(x + 635, y, f"{_duration(total.seconds / total.num_steps)} each", 15, SOFT, "rs")
            page.text(x + 690, y, f"{total.seconds / max(whole_s, 1e-9):.0%}", 15, SOFT, "rs")

    def _colour(self, step: StepRecord) -> str:
        return self.colours[step.quantum, step.phase]


def most_mixed(steps: Sequence[StepRecord], count: int) -> Sequence[StepRecord]:
    """The `count` neighbouring steps between which models change most often; all when there are fewer."""
    changes = [0, *(int(one.model != other.model) for one, other in pairwise(steps))]
    best, best_sum = 0, sum(changes[:count])
    window = best_sum
    for first in range(1, max(1, len(steps) - count + 1)):
        window += changes[first + count - 1] - changes[first - 1]
        if window > best_sum:
            best, best_sum = first, window
    return steps[best : best + count]


def _colours(steps: Sequence[StepRecord]) -> dict[tuple[str, str], str]:
    kinds = dict.fromkeys((step.quantum, step.phase) for step in steps)
    unknown = [kind for kind in kinds if kind not in COLOURS]
    return COLOURS | {kind: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, kind in enumerate(unknown)}


def _grid(page: Page, axis: Axis, top: float, bottom: float) -> None:
    """Vertical lines with times below, counted from the axis's start."""
    ticks = axis.ticks()
    in_ms = ticks[-1] < 1
    for tick in ticks:
        x = axis.x(axis.start_s + tick)
        page.line((x, top - 8, x, bottom + 8), GRID)
        page.text(x, bottom + 26, f"{tick * 1e3:g} ms" if in_ms else f"{tick:g} s", 13, SOFT, "ms")


def _duration(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _blend(colour: str, share: float) -> str:
    """The colour over paper; a little filled is still seen."""
    alpha = max(0.25, math.sqrt(share))
    channels = zip(ImageColor.getrgb(colour), ImageColor.getrgb(PAPER), strict=True)
    return "#" + "".join(f"{round(alpha * over + (1 - alpha) * under):02x}" for over, under in channels)
