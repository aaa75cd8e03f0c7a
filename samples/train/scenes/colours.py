"""Colour names of things and backgrounds, the kinds of background, and the picture styles."""

from samples.train.scenes.types import RGB

TINTS: dict[str, RGB] = {
    "red": (222, 38, 38), "orange": (250, 135, 20), "yellow": (250, 215, 30), "green": (40, 165, 60),
    "blue": (35, 90, 225),
    "purple": (135, 50, 190), "pink": (250, 125, 185), "brown": (115, 65, 25), "gray": (130, 130, 130),
    "turquoise": (30, 195, 195),
    "black": (38, 38, 42), "white": (242, 242, 242),
}  # fmt: skip
"""Colours a thing can be painted in; the value is the colour of its median luminance."""

SOLIDS: dict[str, RGB] = {
    "white": (250, 250, 250), "black": (14, 14, 16), "gray": (128, 128, 128), "red": (220, 36, 36),
    "orange": (248, 142, 28),
    "yellow": (248, 220, 48), "green": (46, 160, 62), "blue": (40, 92, 218), "purple": (130, 58, 180),
    "pink": (246, 140, 190),
    "brown": (120, 74, 38), "turquoise": (44, 196, 192), "light blue": (160, 212, 248), "light green": (168, 232, 150),
    "dark blue": (16, 28, 98), "dark green": (12, 74, 34), "beige": (236, 216, 176),
}  # fmt: skip
"""Colours of named plain backgrounds."""

SCENERY: tuple[str, ...] = ("grass", "beach", "snow", "desert", "sunset", "night", "space", "underwater", "sky")
"""Backgrounds that show a place."""

TWO_COLOUR: tuple[str, ...] = ("gradient", "glow", "stripes", "checker", "dots")
"""Backgrounds made of two named colours (first = top/centre/stripe/square/dot, second = bottom/rim/ground)."""

BACKGROUND_KINDS: tuple[str, ...] = ("plain", "solid", *SCENERY, *TWO_COLOUR)
"""plain = a colour that the caption does not say (mostly white); solid = a colour that it does."""

TWO_COLOUR_NAMES: tuple[str, ...] = (
    "white", "black", "gray", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "turquoise",
)  # fmt: skip

STYLES: tuple[str, ...] = ("black and white", "pixel art")

CLASHES: dict[str, tuple[str, ...]] = {
    "red": ("red", "orange", "brown"), "orange": ("orange", "yellow", "red", "beige"), "yellow": ("yellow", "orange",
    "beige"),
    "green": ("green", "light green", "dark green"), "blue": ("blue", "light blue", "dark blue"), "purple": ("purple",
    "pink"),
    "pink": ("pink", "purple"), "brown": ("brown", "red", "orange"), "gray": ("gray",), "turquoise": ("turquoise",
    "light blue"),
    "black": ("black", "dark blue", "dark green"), "white": ("white", "beige"),
}  # fmt: skip
"""Background colours on which a thing of the key's tint would be hard to see; never drawn together."""

SCENERY_CLASHES: dict[str, tuple[str, ...]] = {
    "grass": ("green", "blue", "turquoise"), "beach": ("yellow", "blue", "turquoise", "white"), "snow": ("white",
    "blue", "turquoise"),
    "desert": ("yellow", "orange", "brown"), "sunset": ("orange", "red", "purple", "pink"), "night": ("black", "blue",
    "purple"),
    "space": ("black", "blue", "purple"), "underwater": ("blue", "turquoise"), "sky": ("blue", "white", "turquoise"),
}  # fmt: skip
"""The same, for scenery."""
