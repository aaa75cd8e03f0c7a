"""Random scenes and clips: the mixture that the image and video models are trained on. Pure Python."""

from dataclasses import replace
from random import Random

from samples.train.scenes.colours import (
    CLASHES,
    SCENERY,
    SCENERY_CLASHES,
    SOLIDS,
    STYLES,
    TINTS,
    TWO_COLOUR,
    TWO_COLOUR_NAMES,
)
from samples.train.scenes.motion import IN_PLACE, MOTIONS
from samples.train.scenes.objects import THINGS, VIDEO_IDS
from samples.train.scenes.types import COUNT, EMPTY, PAIR_H, PAIR_V, RGB, ROW, SINGLE, Background, Item, Scene

PLACES: dict[str, tuple[float, float]] = {
    "on the left": (0.25, 0.5), "on the right": (0.75, 0.5), "at the top": (0.5, 0.25), "at the bottom": (0.5, 0.75),
    "in the top left corner": (0.25, 0.25), "in the top right corner": (0.75, 0.25),
    "in the bottom left corner": (0.25, 0.75), "in the bottom right corner": (0.75, 0.75),
}  # fmt: skip
"""Places a caption can name and the centre they mean."""

SIZES: dict[str, tuple[float, float]] = {"": (0.68, 0.78), "big": (0.88, 0.96), "small": (0.26, 0.36)}
"""Size range of a thing alone in the picture, by the word that a caption says."""

_SOLID_NAMES, _TINT_NAMES, _PLACE_NAMES = tuple(SOLIDS), tuple(TINTS), tuple(PLACES)
_COUNT_CENTERS = {
    2: ((0.27, 0.5), (0.73, 0.5)),
    3: ((0.19, 0.5), (0.5, 0.5), (0.81, 0.5)),
    4: ((0.27, 0.27), (0.73, 0.27), (0.27, 0.73), (0.73, 0.73)),
}
_COUNT_SIZES = {2: (0.37, 0.42), 3: (0.26, 0.30), 4: (0.36, 0.41)}


def _jitter(rng: Random, rgb: RGB, by: int = 6) -> RGB:
    red, green, blue = (min(255, max(0, value + rng.randint(-by, by))) for value in rgb)
    return red, green, blue


def sample_background(rng: Random) -> Background:
    """34 % unsaid colour (mostly white), 34 % named colour, 16 % scenery, 16 % two-colour patterns."""
    roll = rng.random()
    phase, period, vertical = rng.random(), rng.uniform(0.16, 0.26), rng.random() < 0.5
    if roll < 0.34:
        if rng.random() < 0.62:
            rgb = (255, 255, 255)
        else:
            rgb = (rng.randint(205, 250), rng.randint(205, 250), rng.randint(205, 250))
        return Background("plain", "", "", rgb, rgb, phase, period, False)
    if roll < 0.68:
        return named_background(rng, "solid", rng.choice(_SOLID_NAMES))
    if roll < 0.84:
        return named_background(rng, rng.choice(SCENERY))
    first, second = rng.sample(TWO_COLOUR_NAMES, 2)
    return named_background(rng, rng.choice(TWO_COLOUR), first, second, vertical)


def named_background(rng: Random, kind: str, first: str = "", second: str = "", vertical: bool = False) -> Background:
    """A background with given words; shades and textures vary with rng."""
    rgb_first = _jitter(rng, SOLIDS[first]) if first else (0, 0, 0)
    rgb_second = _jitter(rng, SOLIDS[second]) if second else rgb_first
    is_turned = vertical and kind in ("stripes", "gradient")
    return Background(kind, first, second, rgb_first, rgb_second, rng.random(), rng.uniform(0.16, 0.26), is_turned)


def tint_is_visible(tint: str, background: Background) -> bool:
    """Whether a thing painted in `tint` stands out from the background."""
    if background.kind == "plain":
        return tint != "white"
    if background.kind in SCENERY_CLASHES:
        return tint not in SCENERY_CLASHES[background.kind]
    return background.first not in CLASHES[tint] and background.second not in CLASHES[tint]


def _tint(rng: Random, background: Background, chance: float) -> str:
    if rng.random() >= chance:
        return ""
    tint = rng.choice(_TINT_NAMES)
    return tint if tint_is_visible(tint, background) else ""


def _near(rng: Random, center: float, by: float = 0.02) -> float:
    return center + rng.uniform(-by, by)


def _single(rng: Random, background: Background, thing_id: int) -> tuple[Item, ...]:
    tint, roll = _tint(rng, background, 0.32), rng.random()
    if roll < 0.16:
        word = "big" if rng.random() < 0.5 else "small"
        by = 0.01 if word == "big" else 0.06
        x, y = _near(rng, 0.5, by), _near(rng, 0.5, by)
        return (Item(thing_id, x, y, rng.uniform(*SIZES[word]), size_word=word, tint=tint),)
    if roll < 0.42:
        place = rng.choice(_PLACE_NAMES)
        x, y = PLACES[place]
        return (Item(thing_id, _near(rng, x), _near(rng, y), rng.uniform(0.42, 0.50), place=place, tint=tint),)
    pose, angle = "", 0.0
    if roll < 0.46:
        pose, angle = "upside down", 180.0
    elif roll < 0.48:
        pose, angle = "tilted", 35.0
    return (Item(thing_id, _near(rng, 0.5), _near(rng, 0.5), rng.uniform(*SIZES[""]), angle, tint=tint, pose=pose),)


def _two_sizes(rng: Random, ordinary: tuple[float, float]) -> tuple[tuple[str, float], tuple[str, float]]:
    """Size word and size of two things: mostly both ordinary, 15 % one small and one big."""
    if rng.random() >= 0.15:
        return ("", rng.uniform(*ordinary)), ("", rng.uniform(*ordinary))
    small, big = ("small", rng.uniform(0.22, 0.26)), ("big", rng.uniform(0.50, 0.54))
    return (small, big) if rng.random() < 0.5 else (big, small)


def _pair(rng: Random, background: Background, ids: tuple[int, ...], is_beside: bool) -> tuple[Item, ...]:
    first, second = rng.sample(ids, 2)
    (word_a, size_a), (word_b, size_b) = _two_sizes(rng, (0.40, 0.45))
    low = 0.5 - (0.23 if not word_a else 0.28 if word_a == "small" else 0.20)
    high = 0.5 + (0.23 if not word_b else 0.28 if word_b == "small" else 0.20)
    tints = _tint(rng, background, 0.18), _tint(rng, background, 0.18)
    points = ((low, 0.5), (high, 0.5)) if is_beside else ((0.5, low), (0.5, high))
    rows = zip((first, second), points, (size_a, size_b), (word_a, word_b), tints, strict=True)
    return tuple(
        Item(thing, _near(rng, x, 0.015), _near(rng, y, 0.015), size, size_word=word, tint=tint)
        for thing, (x, y), size, word, tint in rows
    )


def _count(rng: Random, background: Background, thing_id: int, number: int) -> tuple[Item, ...]:
    tint, size = _tint(rng, background, 0.25), rng.uniform(*_COUNT_SIZES[number])
    centers = _COUNT_CENTERS[number]
    return tuple(Item(thing_id, _near(rng, x, 0.015), _near(rng, y, 0.015), size, tint=tint) for x, y in centers)


def _row(rng: Random, background: Background, ids: tuple[int, ...]) -> tuple[Item, ...]:
    things, size = rng.sample(ids, 3), rng.uniform(*_COUNT_SIZES[3])
    tints = [_tint(rng, background, 0.12) for _ in things]
    return tuple(
        Item(thing, _near(rng, x, 0.01), _near(rng, y, 0.015), size, tint=tint)
        for thing, (x, y), tint in zip(things, _COUNT_CENTERS[3], tints, strict=True)
    )


def sample_scene(rng: Random, ids: tuple[int, ...] = tuple(range(len(THINGS)))) -> Scene:
    """A random still: 52 % one thing, 30 % two, 11 % counts of 2-4, 5 % three in a row, 2 % background only."""
    background, roll = sample_background(rng), rng.random()
    if roll < 0.52:
        style = rng.choice(STYLES) if rng.random() < 0.05 else ""
        items = _single(rng, background, rng.choice(ids))
        if style == "black and white":  # a colour that the picture does not show must not be said
            grey = rng.choice(("white", "black", "gray"))
            background = named_background(rng, "solid", grey) if background.kind != "plain" else background
            items = tuple(replace(item, tint="") for item in items)
        return Scene(SINGLE, background, items, style)
    if roll < 0.82:
        is_beside = rng.random() < 0.68
        return Scene(PAIR_H if is_beside else PAIR_V, background, _pair(rng, background, ids, is_beside))
    if roll < 0.93:
        return Scene(COUNT, background, _count(rng, background, rng.choice(ids), rng.choice((2, 2, 3, 3, 4))))
    if roll < 0.98:
        return Scene(ROW, background, _row(rng, background, ids))
    return Scene(EMPTY, background if background.kind != "plain" else named_background(rng, "solid", "white"), ())


def sample_clip(rng: Random, ids: tuple[int, ...] = VIDEO_IDS) -> Scene:
    """A random clip (is_clip): 88 % one thing with one motion, 12 % two things side by side, each with its own."""
    background = sample_background(rng)
    if rng.random() < 0.88:
        tint, motion = _tint(rng, background, 0.28), rng.choice(MOTIONS)
        x, y, size = _near(rng, 0.5), _near(rng, 0.5), rng.uniform(0.42, 0.50)
        return Scene(SINGLE, background, (Item(rng.choice(ids), x, y, size, tint=tint, motion=motion),), is_clip=True)
    return Scene(PAIR_H, background, _moving_pair(rng, background, ids), is_clip=True)


def _moving_pair(rng: Random, background: Background, ids: tuple[int, ...]) -> tuple[Item, ...]:
    items = []
    for thing_id, x in zip(rng.sample(ids, 2), (0.27, 0.73), strict=True):
        tint, motion = _tint(rng, background, 0.12), rng.choice(IN_PLACE)
        place = _near(rng, x, 0.01), _near(rng, 0.5)
        items.append(Item(thing_id, *place, rng.uniform(0.34, 0.38), tint=tint, motion=motion))
    return tuple(items)
