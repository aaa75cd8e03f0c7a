"""Draws a graph of boxes as SVG, columns from left to right by depth. Knows nothing of programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 240, 52, 60, 16, 20
_COLD, _HOT, _FAILED = (235, 242, 250), (247, 178, 103), "#f3c6c6"
_BAR, _LINE, _LEGEND = "#3b7dd8", "#8a94a0", 30
_LONG_DETAIL = 34  # characters: more are wider than a box


@dataclass(frozen=True, slots=True)
class Box:
    """One node of the picture.

    Fields:
        inputs: indices of the boxes that arrows come from; all before this one.
        heat: 0..1, its colour.
        share: 0..1, how much of the bar at its foot is full.
    """

    title: str
    detail: str
    tooltip: str
    inputs: tuple[int, ...]
    heat: float = 0.0
    share: float = 0.0
    is_failed: bool = False


def draw(boxes: Sequence[Box], *, heat: str = "", share: str = "") -> str:
    """The picture, as a whole SVG document on a white ground.

    Args:
        heat, share: what these of the boxes mean, for a line below; none is drawn where both are left out.
    """
    corners = _corners(boxes)
    width = max((x for x, _ in corners), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in corners), default=0) + _HEIGHT + _MARGIN
    legend = _legend(heat, share, height) if heat or share else []
    height += _LEGEND if legend else 0
    width = max(width, _MARGIN + _WIDTH + 48 + 7 * len(share) + _MARGIN) if legend else width
    arrows = [_arrow(corners[source], corners[i]) for i, box in enumerate(boxes) for source in _direct(boxes, box)]
    drawn = [_drawn(box, *corner) for box, corner in zip(boxes, corners, strict=True)]
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" fill="#1d2733">'
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *arrows, *drawn, *legend, "</svg>", ""])


def _legend(heat: str, share: str, y: int) -> list[str]:
    """A line of what colours and bars mean."""
    swatches = [
        f'<rect x="{_MARGIN + 14 * i}" y="{y}" width="14" height="12" fill="{_mixed(i / 4)}"/>' for i in range(5)
    ]
    middle = _MARGIN + _WIDTH
    return [
        *(swatches if heat else []),
        f'<text x="{_MARGIN + 78}" y="{y + 10}" font-size="11">{escape(heat)}</text>',
        f'<rect x="{middle}" y="{y + 5}" width="40" height="3" fill="{_BAR}"/>' if share else "",
        f'<text x="{middle + 48}" y="{y + 10}" font-size="11">{escape(share)}</text>',
    ]


def _corners(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    """Upper left corners, pixels. A box stands one column behind the last of its inputs."""
    depths: list[int] = []
    rows: dict[int, int] = {}
    corners = []
    for box in boxes:
        depth = max((depths[i] + 1 for i in box.inputs), default=0)
        row = rows[depth] = rows.get(depth, -1) + 1
        depths.append(depth)
        corners.append((_MARGIN + depth * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y)))
    return corners


def _direct(boxes: Sequence[Box], box: Box) -> list[int]:
    """Its inputs without those that another of its inputs needs as well: fewer arrows, the same order."""
    reached = {i for source in box.inputs for i in _ancestors(boxes, source)}
    return [i for i in box.inputs if i not in reached]


def _ancestors(boxes: Sequence[Box], i: int) -> set[int]:
    found: set[int] = set()
    waiting = list(boxes[i].inputs)
    while waiting:
        j = waiting.pop()
        if j not in found:
            found.add(j)
            waiting += boxes[j].inputs
    return found


def _arrow(source: tuple[int, int], target: tuple[int, int]) -> str:
    x0, y0 = source[0] + _WIDTH, source[1] + _HEIGHT // 2
    x1, y1 = target[0], target[1] + _HEIGHT // 2
    middle = (x0 + x1) // 2
    return f'<path d="M{x0} {y0} C{middle} {y0} {middle} {y1} {x1} {y1}" fill="none" stroke="{_LINE}"/>'


def _drawn(box: Box, x: int, y: int) -> str:
    colour = _FAILED if box.is_failed else _mixed(box.heat)
    full = round((_WIDTH - 20) * min(max(box.share, 0.0), 1.0))
    bar_y = y + _HEIGHT - 8
    return "\n".join(
        [
            f"<g><title>{escape(box.tooltip)}</title>",
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{colour}" stroke="{_LINE}"/>',
            f'<text x="{x + 10}" y="{y + 18}" font-size="13" font-weight="bold">{escape(_cut(box.title))}</text>',
            f'<text x="{x + 10}" y="{y + 35}" font-size="11"{_fitted(box.detail)}>{escape(box.detail)}</text>',
            f'<rect x="{x + 10}" y="{bar_y}" width="{full}" height="3" fill="{_BAR}"/></g>',
        ]
    )


def _fitted(detail: str) -> str:
    """Squeezes a long line into its box."""
    return f' textLength="{_WIDTH - 20}" lengthAdjust="spacingAndGlyphs"' if len(detail) > _LONG_DETAIL else ""


def _cut(title: str) -> str:
    """As much of it as fits into a box."""
    return title if len(title) <= 24 else f"{title[:23]}…"


def _mixed(heat: float) -> str:
    share = min(max(heat, 0.0), 1.0)
    red, green, blue = (round(cold + (hot - cold) * share) for cold, hot in zip(_COLD, _HOT, strict=True))
    return f"rgb({red},{green},{blue})"
