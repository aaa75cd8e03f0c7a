"""The judge's reading of its maps, the abilities' scores, and the committed prompts."""

import random
from dataclasses import replace

import torch

from samples.train.image.judge import (
    CELLS,
    COLOURS,
    GROUND_KINDS,
    GROUND_NAMES,
    Judge,
    Sighting,
    Verdict,
    _read,
    ground_label,
)
from samples.train.image.prompts import KINDS, Prompt, evaluation_prompts, tuning_prompts
from samples.train.image.scores import score
from samples.train.image.train_judge import Targets, figures_on_renders, judge_loss, train_judge
from samples.train.scenes.objects import THINGS
from samples.train.scenes.sampling import named_background, sample_scene
from samples.train.scenes.types import Scene


def _maps_of(scene: Scene) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of a judge that knows the scene."""
    maps = torch.full((1, 1 + len(THINGS) + len(COLOURS), CELLS, CELLS), -9.0)
    for item in scene.items:
        row, column = int(item.center_y * CELLS), int(item.center_x * CELLS)
        maps[0, 0, row, column] = 9.0
        near = slice(row - 1, row + 2), slice(column - 1, column + 2)
        maps[0, 1 + item.thing_id, *near] = 9.0
        maps[0, 1 + len(THINGS) + COLOURS.index(item.tint), *near] = 9.0
    kind, first, second = ground_label(scene.background)
    ground = torch.cat([
        torch.eye(len(GROUND_KINDS))[GROUND_KINDS.index(kind)],
        torch.eye(len(GROUND_NAMES))[GROUND_NAMES.index(first)],
        torch.eye(len(GROUND_NAMES))[GROUND_NAMES.index(second)],
    ])  # fmt: skip
    return maps, 9 * ground[None]


def _ideal(scene: Scene) -> Verdict:
    return _read(*_maps_of(scene))[0]


def test_a_judge_that_knows_everything_scores_everything() -> None:
    prompts = evaluation_prompts()
    table = score(prompts, [_ideal(prompt.scene) for prompt in prompts])
    assert {name: row["percent"] for name, row in table.items() if isinstance(row, dict)} == {
        name: 100.0 for name, row in table.items() if isinstance(row, dict)
    }
    assert table["objects missed"] == [] and table["objects asked for"] == len(THINGS)


def test_wrong_pictures_score_nothing() -> None:
    prompts = evaluation_prompts()
    blank = score(prompts, [Verdict((), ("plain", "", ""))] * len(prompts))
    assert {row["percent"] for row in blank.values() if isinstance(row, dict)} == {0.0}
    pair = next(p for p in prompts if p.kind == "left_right")
    seen = [Sighting(item.thing_id, "red", 1 - item.center_x, 0.5, 0.9) for item in pair.scene.items]
    table = score([pair], [Verdict(tuple(seen), ("plain", "", ""))])
    assert table["two objects, both there"]["percent"] == 100.0
    assert table["left/right, where both are there"]["percent"] == 0.0


def test_the_loss_prefers_the_truth() -> None:
    rng = random.Random(0)
    scenes = [scene for scene in (sample_scene(rng) for _ in range(40)) if scene.items]
    good, other = 0.0, 0.0
    for scene, wrong in zip(scenes, scenes[1:] + scenes[:1], strict=True):
        maps, ground = _maps_of(scene)
        good += judge_loss(maps, ground, Targets.of([scene], torch.device("cpu"))).item()
        other += judge_loss(maps, ground, Targets.of([wrong], torch.device("cpu"))).item()
    assert good < 0.2 * other


def test_shapes_of_the_judge() -> None:
    maps, ground = Judge()(torch.rand(2, 3, 128, 128))
    assert maps.shape == (2, 1 + len(THINGS) + len(COLOURS), CELLS, CELLS)
    assert ground.shape == (2, len(GROUND_KINDS) + 2 * len(GROUND_NAMES))


def test_prompts_ask_for_every_object_and_differ_from_the_tuning_prompts() -> None:
    prompts = evaluation_prompts()  # raises when the committed file is not what the grammar makes
    assert {prompt.kind for prompt in prompts} == set(KINDS)
    named = [prompt for prompt in prompts if prompt.kind == "object"]
    assert {prompt.scene.items[0].thing_id for prompt in named} == set(range(len(THINGS)))
    assert len({prompt.seed for prompt in prompts}) == len(prompts)
    tuning: list[Prompt] = tuning_prompts()
    assert [replace(p, seed=0).row() for p in tuning[:50]] != [replace(p, seed=0).row() for p in prompts[:50]]


def test_stripes_of_two_colours_have_one_label_in_both_orders() -> None:
    """A picture of stripes cannot tell which colour the caption says first, so neither may the judge's target."""
    rng = random.Random(4)
    for kind in ("stripes", "checker"):
        there, back = (named_background(rng, kind, *pair) for pair in (("red", "blue"), ("blue", "red")))
        assert ground_label(there) == ground_label(back) == (kind, "blue", "red")
    for kind in ("gradient", "glow", "dots"):
        there, back = (named_background(rng, kind, *pair) for pair in (("red", "blue"), ("blue", "red")))
        assert ground_label(there)[1:] == ("red", "blue") and ground_label(back)[1:] == ("blue", "red")


def test_a_judge_trained_for_a_moment_leaves_its_average_in_place() -> None:
    judge = train_judge(4.0, torch.device("cpu"), seed=1, pool=8, batch=2)
    assert all(torch.isfinite(p).all() and not p.requires_grad for p in judge.parameters())
    assert set(figures_on_renders(judge, torch.device("cpu"), 4)) >= {"object", "background", "colour", "count"}
