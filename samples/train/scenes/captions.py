"""The caption grammar: scene -> one of many wordings. Whatever shows is said; nothing is said that does not show.

The order of mention carries meaning in the plain wordings: "a cat and a dog" is the cat on the left.
"""

from collections.abc import Callable
from random import Random

from samples.train.scenes.objects import THINGS
from samples.train.scenes.types import COUNT, EMPTY, PAIR_H, PAIR_V, ROW, SINGLE, Background, Item, Scene

_PREFIXES = (
    "a picture of {}", "a drawing of {}", "an image of {}", "an illustration of {}", "an icon of {}",
    "a sticker of {}", "draw {}",
    "please draw {}", "draw me {}", "paint {}", "show me {}", "make a picture of {}", "create an image of {}",
    "generate an image of {}",
    "generate {}", "i want to see {}", "can you draw {}", "let's see {}",
)  # fmt: skip
_CLIP_PREFIXES = (
    "a video of {}", "a clip of {}", "an animation of {}", "a short video of {}", "animate {}", "show me {}",
    "make a video of {}",
    "create a video of {}", "generate a clip of {}", "a movie of {}", "generate a video of {}", "film {}",
)  # fmt: skip
_SUFFIXES = (
    ".",
    ".",
    ", cute",
    ", flat design",
    ", simple",
    ", cartoon style",
    ", clip art",
    ", please",
    "!",
    ", emoji style",
)

_LEFT_RIGHT = (
    "{a} to the left of {b}", "{a} left of {b}", "{b} to the right of {a}", "{b} right of {a}",
    "{a} on the left and {b} on the right",
    "{a} on the left, {b} on the right", "{b} on the right, {a} on the left", "{b} on the right and {a} on the left",
    "{a} on the left side of {b}", "{b} on the right side of {a}",
    "{a} and {b}", "{a} and {b}", "{a} next to {b}", "{a} beside {b}", "{a} and {b} side by side",
)  # fmt: skip
_ABOVE_BELOW = (
    "{a} above {b}", "{a} over {b}", "{a} on top of {b}", "{b} below {a}", "{b} under {a}", "{b} beneath {a}",
    "{b} underneath {a}",
    "{a} at the top and {b} at the bottom", "{a} at the top, {b} at the bottom",
    "{b} at the bottom and {a} at the top",
    "{a} above and {b} below", "{b} with {a} above it",
)  # fmt: skip
_IN_A_ROW = (
    "{a}, {b} and {c}", "{a}, {b}, and {c}", "{a}, {b} and {c} in a row", "{a} and {b} and {c}",
    "from left to right: {a}, {b}, {c}",
    "{a}, {b}, {c}", "{a} on the left, {b} in the middle and {c} on the right", "{a} next to {b} next to {c}",
)  # fmt: skip
_UPSIDE_DOWN = ("{} upside down", "an upside down {n}", "{} turned upside down", "{} standing on its head")
_TILTED = ("a tilted {n}", "{} tilted to the right", "{} leaning to the right")
_NUMBERS = {
    2: ("two", "two", "two", "2", "a pair of"),
    3: ("three", "three", "three", "3"),
    4: ("four", "four", "four", "4"),
}

_SOLID = (
    "on a {} background",
    "on a {} background",
    "with a {} background",
    "on {}",
    "against a {} background",
    "in front of a {} wall",
)
_SCENERY: dict[str, tuple[str, ...]] = {
    "grass": ("on grass", "on the grass", "in a meadow", "in a green field", "on a lawn"),
    "beach": ("on the beach", "at the beach", "on a beach", "on the sand by the sea", "by the sea"),
    "snow": ("in the snow", "in a snowy landscape", "on snow", "in winter"),
    "desert": ("in the desert", "in a desert", "on a sand dune", "among sand dunes"),
    "sunset": ("at sunset", "in front of a sunset", "in the sunset", "with a sunset sky"),
    "night": ("at night", "under a starry sky", "in the night", "with a night sky"),
    "space": ("in space", "in outer space", "floating in space", "among the stars"),
    "underwater": ("underwater", "under water", "under the sea", "in the ocean"),
    "sky": ("in the sky", "in a blue sky", "up in the sky", "among the clouds"),
}
_TWO_COLOUR: dict[str, tuple[str, ...]] = {
    "glow": ("on {b} with a {a} glow", "in front of a {a} glow on {b}", "with a {a} glow on a {b} background"),
    "checker": ("on a {a} and {b} checkerboard", "on a {a} and {b} checkered background", "on {a} and {b} squares"),
    "dots": ("on {b} with {a} dots", "on a {b} background with {a} dots", "on {a} polka dots on {b}"),
}
_STRIPES: dict[bool, tuple[str, ...]] = {
    True: (
        "on {a} and {b} vertical stripes",
        "on vertical {a} and {b} stripes",
        "on a background of vertical {a} and {b} stripes",
    ),
    False: (
        "on {a} and {b} horizontal stripes",
        "on horizontal {a} and {b} stripes",
        "on a background of horizontal {a} and {b} stripes",
    ),
}
_GRADIENT: dict[bool, tuple[str, ...]] = {
    True: ("on a gradient from {a} on the left to {b} on the right", "on a horizontal gradient from {a} to {b}"),
    False: ("on a {a} to {b} gradient", "on a gradient from {a} to {b}", "on a background fading from {a} to {b}"),
}
_TURNED = {"stripes": _STRIPES, "gradient": _GRADIENT}
_STYLES: dict[str, tuple[str, ...]] = {
    "black and white": (
        "{}, black and white",
        "a black and white picture of {}",
        "{} in black and white",
        "black and white drawing of {}",
    ),
    "pixel art": (
        "{}, pixel art",
        "pixel art of {}",
        "{} as pixel art",
        "a pixel art picture of {}",
        "{} in pixel art style",
    ),
}

_MOTIONS: dict[str, tuple[str, ...]] = {
    "right": ("moving right", "moving to the right", "sliding to the right", "going right",
    "moving from left to right", "gliding right"),
    "left": ("moving left", "moving to the left", "sliding to the left", "going left", "moving from right to left",
    "gliding left"),
    "up": ("moving up", "going up", "rising", "moving upwards", "floating up", "moving from bottom to top"),
    "down": ("moving down", "going down", "falling", "moving downwards", "sinking", "moving from top to bottom"),
    "up right": ("moving diagonally up", "moving up and to the right", "going diagonally upwards",
    "moving from the bottom left to the top right"),
    "down right": ("moving diagonally down", "moving down and to the right", "going diagonally downwards",
    "moving from the top left to the bottom right"),
    "spin clockwise": ("spinning", "rotating", "spinning clockwise", "rotating clockwise", "turning clockwise",
    "spinning around"),
    "spin counterclockwise": ("spinning counterclockwise", "rotating counterclockwise", "turning counterclockwise",
    "spinning anticlockwise"),
    "grow": ("growing", "getting bigger", "growing bigger", "zooming in", "getting larger", "coming closer"),
    "shrink": ("shrinking", "getting smaller", "zooming out", "becoming smaller", "going away"),
    "bounce": ("bouncing", "jumping", "bouncing up and down", "jumping up and down", "hopping"),
    "wiggle": ("wiggling", "shaking", "dancing", "wobbling", "rocking back and forth"),
    "circle": ("moving in a circle", "going in circles", "circling", "flying in a circle",
    "moving around in a circle"),
    "side to side": ("moving from side to side", "swinging from side to side", "moving left and right",
    "pacing from left to right and back"),
    "still": ("standing still", "not moving", "staying still", "holding still", "at rest"),
}  # fmt: skip


def article(words: str) -> str:
    """words with "a" or "an" before them."""
    is_an = words[0] in "aeiou" and not words.startswith(("uni", "one"))
    return f"{'an' if is_an else 'a'} {words}"


def _adjectives(item: Item) -> str:
    return " ".join(word for word in (item.size_word, item.tint) if word)


def _noun(item: Item) -> str:
    return f"{_adjectives(item)} {THINGS[item.thing_id].name}".strip()


def noun_phrase(item: Item) -> str:
    """The item with article, size and colour: "a small red car"; says neither place, pose nor motion."""
    return article(_noun(item))


def background_phrase(rng: Random, background: Background) -> str:
    """How the background is said after the subject; "" for a plain one."""
    a, b = background.first, background.second
    if background.kind == "plain":
        return ""
    if background.kind == "solid":
        return _say(rng.choice(_SOLID), a)
    if background.kind in _SCENERY:
        return rng.choice(_SCENERY[background.kind])
    if background.kind in _TURNED:
        wordings = _TURNED[background.kind][background.vertical]
    else:
        wordings = _TWO_COLOUR[background.kind]
    return _say(rng.choice(wordings).replace("{b}", b), a)


def _say(wording: str, words: str) -> str:
    """Fill {} or {a} in a wording, with the article that fits."""
    for slot in ("{a}", "{}"):
        if f"a {slot}" in wording:
            wording = wording.replace(f"a {slot}", article(words), 1)
        wording = wording.replace(slot, words)
    return wording


def _single(rng: Random, scene: Scene) -> str:
    item = scene.items[0]
    if item.pose == "upside down":
        wording = rng.choice(_UPSIDE_DOWN)
        return wording.format(noun_phrase(item), n=_noun(item))
    if item.pose == "tilted":
        return rng.choice(_TILTED).format(noun_phrase(item), n=_noun(item))
    if item.size_word and rng.random() < 0.3:
        bare = f"{item.tint} {THINGS[item.thing_id].name}".strip()
        other = {"big": ("large", "huge", "giant"), "small": ("tiny", "little", "mini")}[item.size_word]
        return article(f"{rng.choice(other)} {bare}")
    if item.place:
        place = item.place
        if place.startswith("in the") and rng.random() < 0.3:
            place = place.replace(" corner", "")
        elif place in ("on the left", "on the right") and rng.random() < 0.3:
            place += " side"
        return f"{noun_phrase(item)} {place}"
    if rng.random() < 0.06:
        alone, whole = _noun(item), noun_phrase(item)
        return rng.choice((alone, f"one {alone}", f"the {alone}", f"{whole} in the middle"))
    return noun_phrase(item)


def _count(rng: Random, scene: Scene) -> str:
    item, number = scene.items[0], len(scene.items)
    many = f"{_adjectives(item)} {THINGS[item.thing_id].plural}".strip()
    ending = rng.choice(("", "", "", "", " in a row", " together")) if number < 4 else ""
    return f"{rng.choice(_NUMBERS[number])} {many}{ending}"


def _related(wordings: tuple[str, ...]) -> Callable[[Random, Scene], str]:
    def say(rng: Random, scene: Scene) -> str:
        return rng.choice(wordings).format(**dict(zip("abc", map(noun_phrase, scene.items), strict=False)))

    return say


_SUBJECTS: dict[str, Callable[[Random, Scene], str]] = {
    SINGLE: _single, COUNT: _count,
    PAIR_H: _related(_LEFT_RIGHT), PAIR_V: _related(_ABOVE_BELOW), ROW: _related(_IN_A_ROW),
}  # fmt: skip


def _empty(rng: Random, background: Background) -> str:
    if background.kind == "solid":
        return rng.choice(("a {} background", "just {c}", "an empty {c} background", "nothing but {c}")).format(
            background.first, c=background.first
        )
    return rng.choice(("an empty background {}", "nothing {}", "no objects, just the background, {}")).format(
        background_phrase(rng, background)
    )


def _with_background(rng: Random, subject: str, background: Background, may_lead: bool) -> str:
    phrase = background_phrase(rng, background)
    if not phrase:
        return subject
    roll = rng.random()
    if roll < 0.06 and background.kind == "solid":
        return f"{subject}, {background.first} background"
    if may_lead and roll < 0.2:
        return f"{phrase}, {subject}"
    return f"{subject} {phrase}" if roll < 0.9 else f"{subject}, {phrase}"


def _clip_subject(rng: Random, scene: Scene) -> str:
    parts = [f"{noun_phrase(item)} {rng.choice(_MOTIONS[item.motion])}" for item in scene.items]
    if len(parts) == 1:
        return parts[0]
    return rng.choice(("{} and {}", "{} next to {}", "{} on the left and {} on the right", "{}, {}")).format(*parts)


def caption(rng: Random, scene: Scene) -> str:
    """One wording of the scene, a still or (is_clip) a clip: 40 % are put as a request, 20 % end in a flourish."""
    is_request = not scene.style and scene.relation != EMPTY and rng.random() < 0.4
    if scene.relation == EMPTY:
        text = _empty(rng, scene.background)
    else:
        subject = _clip_subject(rng, scene) if scene.is_clip else _SUBJECTS[scene.relation](rng, scene)
        text = _with_background(rng, subject, scene.background, may_lead=not is_request and not scene.style)
    if scene.style:
        text = rng.choice(_STYLES[scene.style]).format(text)
    if is_request:
        text = rng.choice(_CLIP_PREFIXES if scene.is_clip else _PREFIXES).format(text)
    if rng.random() < 0.2:
        text += rng.choice(_SUFFIXES)
    return text[0].upper() + text[1:] if rng.random() < 0.3 else text
