"""What a scene is, before it has a caption or pixels: background, items with places, and (for clips) motions.

Coordinates are fractions of the picture (0, 0 = top left corner); sizes are fractions of its short side; angles are
degrees clockwise; colours are 0-255 sRGB. Knows no tensors.
"""

from dataclasses import dataclass

RGB = tuple[int, int, int]

SINGLE, PAIR_H, PAIR_V, COUNT, ROW, EMPTY = "single", "left_right", "above_below", "count", "row", "empty"
"""Relations: one thing; two side by side; one above the other; 2-4 equal things; three different ones; no thing."""


@dataclass(frozen=True, slots=True)
class Background:
    """kind is one of `colours.BACKGROUND_KINDS`; first/second are the colour names a caption must say ("" for none).

    rgb_first/rgb_second are what is painted (names plus jitter); phase in [0, 1) places textures, period is a
    texture's size in fractions of the short side, vertical turns stripes and gradients.
    """

    kind: str
    first: str
    second: str
    rgb_first: RGB
    rgb_second: RGB
    phase: float
    period: float
    vertical: bool


@dataclass(frozen=True, slots=True)
class Item:
    """One drawn thing. size_word, place, tint, pose and motion are what a caption must say; "" is unsaid, ordinary."""

    thing_id: int
    center_x: float
    center_y: float
    size: float
    angle: float = 0.0
    size_word: str = ""
    place: str = ""
    tint: str = ""
    pose: str = ""
    motion: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """relation as above; style is "" or one of `colours.STYLES`; is_clip says that the items' motions are in force.

    items are ordered left to right (PAIR_H, ROW) or top to bottom (PAIR_V); all items of a COUNT are alike.
    """

    relation: str
    background: Background
    items: tuple[Item, ...]
    style: str = ""
    is_clip: bool = False
