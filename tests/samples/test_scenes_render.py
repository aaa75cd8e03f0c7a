"""The renderer: colours land where the scene says, at any size, on the frames of a clip too."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from samples.train.scenes.render import Renderer, pack
from samples.train.scenes.sprites import load_sprites
from samples.train.scenes.vocabulary import (
    BACKGROUND_KINDS,
    BY_NAME,
    SOLIDS,
    TINTS,
    Item,
    Scene,
    named_background,
    sample_clip,
    sample_scene,
)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(load_sprites(), torch.device("cpu"))


def _scene(*items: Item, colour: str = "white") -> Scene:
    return Scene("single", named_background(random.Random(0), "solid", colour), items)


def test_sizes_and_range(renderer: Renderer) -> None:
    rng = random.Random(0)
    scenes = pack([sample_scene(rng) for _ in range(12)])
    for height, width in ((64, 64), (96, 128), (128, 96)):
        image = renderer.stills(scenes, height, width)
        assert image.shape == (12, 3, height, width)
        assert image.min() >= -1e-5 and image.max() <= 1 + 1e-5


def test_a_thing_covers_its_place_and_nothing_else(renderer: Renderer) -> None:
    item = Item(BY_NAME["basketball"], 0.75, 0.25, 0.4)
    image = renderer.stills(pack([_scene(item, colour="black")]), 64, 64)[0]
    ball, ground = image[:, 16, 48], image[:, 48, 16]
    assert ball[0] > 0.6 and ball[0] > ball[2] + 0.3
    assert ground.max() < 0.12


def test_a_tint_colours_the_middle_luminance(renderer: Renderer) -> None:
    for name in ("red", "blue", "turquoise"):
        item = Item(BY_NAME["egg"], 0.5, 0.5, 0.7, tint=name)
        centre = renderer.stills(pack([_scene(item)]), 64, 64)[0][:, 28:36, 28:36].mean(dim=(1, 2))
        assert (centre - torch.tensor(TINTS[name]) / 255).abs().max() < 0.2


def test_solid_backgrounds_have_their_colour(renderer: Renderer) -> None:
    for name, rgb in SOLIDS.items():
        corner = renderer.stills(pack([_scene(colour=name)]), 32, 32)[0][:, 0, 0]
        assert (corner * 255 - torch.tensor(rgb)).abs().max() <= 6.5


def test_every_background_kind_paints_something_of_its_own(renderer: Renderer) -> None:
    rng = random.Random(1)
    scenes = [Scene("empty", named_background(rng, kind, "red", "blue"), ()) for kind in BACKGROUND_KINDS[2:]]
    images = renderer.stills(pack(scenes), 48, 48).flatten(1)
    distance = torch.cdist(images, images) + 1e3 * torch.eye(len(images))
    assert distance.min() > 2.0


def test_upside_down_is_the_picture_turned(renderer: Renderer) -> None:
    item = Item(BY_NAME["tree"], 0.5, 0.5, 0.8)
    upright, turned = renderer.stills(pack([_scene(item), _scene(replace(item, angle=180.0))]), 64, 64)
    assert (upright.flip(1, 2) - turned).abs().mean() < 0.02


def test_clips_move_and_their_background_does_not(renderer: Renderer) -> None:
    item = Item(BY_NAME["apple"], 0.5, 0.5, 0.4, motion="right")
    clip = renderer.clips(pack([_scene(item, colour="blue")]), 5, 64, 64)[0]
    is_apple = clip[0] > 0.55
    columns = torch.arange(64.0)
    centres = [(frame.float().sum(0) * columns).sum() / frame.sum() for frame in is_apple]
    assert all(later - earlier > 5 for earlier, later in pairwise(centres))
    assert clip[:, :, 0, 0].std(dim=1).max() == 0


def test_first_and_last_frames_do_not_depend_on_the_number_of_frames(renderer: Renderer) -> None:
    rng = random.Random(2)
    scenes = pack([sample_clip(rng) for _ in range(6)])
    short, long = renderer.clips(scenes, 3, 48, 48), renderer.clips(scenes, 5, 48, 48)
    assert torch.allclose(short[:, :, [0, -1]], long[:, :, [0, -1]], atol=1e-5)
