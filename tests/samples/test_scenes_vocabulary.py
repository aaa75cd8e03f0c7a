"""Scenes and captions: every attribute that shows is said, geometry stays in the picture, motions go where they say."""

import random

import pytest

from samples.train.scenes.colours import BACKGROUND_KINDS
from samples.train.scenes.motion import IN_PLACE
from samples.train.scenes.vocabulary import (
    BY_NAME,
    MOTIONS,
    THINGS,
    VIDEO_IDS,
    article,
    background_phrase,
    caption,
    named_background,
    sample_clip,
    sample_scene,
    trajectory,
)


def test_object_list_has_the_promised_sizes_and_unique_names() -> None:
    assert 180 <= len(THINGS) <= 200
    assert 80 <= len(VIDEO_IDS) <= 110
    assert len({thing.name for thing in THINGS}) == len({thing.emoji for thing in THINGS}) == len(THINGS)
    assert THINGS[BY_NAME["mouse"]].plural == "mice"
    assert THINGS[BY_NAME["cherry"]].plural == "cherries"


def test_captions_say_every_thing_colour_and_background_colour() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        scene = sample_scene(rng)
        text = caption(rng, scene).lower()
        for item in scene.items:
            thing = THINGS[item.thing_id]
            assert thing.name in text or thing.plural in text
            assert item.tint in text
        assert scene.background.first in text and scene.background.second in text
        assert "{" not in text and "  " not in text


def test_clip_captions_differ_by_motion() -> None:
    said: dict[str, set[str]] = {motion: set() for motion in MOTIONS}
    rng = random.Random(2)
    while min(map(len, said.values())) < 3:
        clip = sample_clip(rng)
        if len(clip.items) == 1:
            words = caption(rng, clip).lower()
            name = THINGS[clip.items[0].thing_id].name
            said[clip.items[0].motion].add(words.split(name, 1)[1])
    for motion, wordings in said.items():
        for other, others in said.items():
            assert motion == other or not wordings & others


@pytest.mark.parametrize("kind", BACKGROUND_KINDS)
def test_every_background_kind_can_be_said(kind: str) -> None:
    rng = random.Random(3)
    names = ("orange", "blue") if kind in ("gradient", "glow", "stripes", "checker", "dots") else ("orange", "")
    background = named_background(rng, kind, *(names if kind not in ("plain",) else ("", "")))
    phrase = background_phrase(rng, background)
    assert bool(phrase) == (kind != "plain")
    assert "a orange" not in phrase


def test_centres_stay_inside_the_picture() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        for item in sample_scene(rng).items:
            assert 0.15 < item.center_x < 0.85 and 0.15 < item.center_y < 0.85


def test_motions_go_where_their_names_say() -> None:
    (x0, y0, *_), (x1, y1, *_) = trajectory("up right", 0.0), trajectory("up right", 1.0)
    assert x1 > x0 and y1 < y0
    assert trajectory("left", 1.0)[0] < trajectory("left", 0.0)[0]
    assert trajectory("grow", 1.0)[2] > 2 * trajectory("grow", 0.0)[2]
    assert trajectory("spin clockwise", 0.25)[3] == 90
    for motion in MOTIONS:
        assert all(abs(offset) <= 0.30 for u in (0, 0.1, 0.25, 0.5, 0.75, 1) for offset in trajectory(motion, u)[:2])
    assert all(trajectory(motion, u)[0] == 0 for motion in IN_PLACE for u in (0.0, 0.3, 1.0))


def test_the_same_seed_gives_the_same_captions() -> None:
    def captions() -> list[str]:
        rng = random.Random(5)
        return [caption(rng, sample_scene(rng)) for _ in range(20)]

    assert captions() == captions()


def test_article_follows_the_sound() -> None:
    assert article("apple") == "an apple"
    assert article("unicorn") == "a unicorn"
    assert article("umbrella") == "an umbrella"
