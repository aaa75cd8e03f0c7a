"""The evaluation prompts of the image model: `python -m samples.train.image.prompts` writes evaluation.jsonl.

The file is committed before the final training. Every object is asked for equally often, and so is every colour, named
background and number; wording and the rest are random, from a seed that no training uses. Prompts come from the same
grammar as the training captions: what is new is the combination, not the words.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from samples.train.scenes.captions import caption
from samples.train.scenes.colours import SCENERY, SOLIDS, TINTS, TWO_COLOUR, TWO_COLOUR_NAMES
from samples.train.scenes.objects import THINGS
from samples.train.scenes.sampling import named_background, sample_background, sample_scene, tint_is_visible
from samples.train.scenes.types import COUNT, PAIR_H, PAIR_V, SINGLE, Background, Item, Scene

PROMPT_FILE = Path(__file__).with_name("evaluation.jsonl")
_SEED, _TUNING_SEED = 30_000_001, 30_000_002
KINDS = ("object", "background", "colour", "count", "left_right", "above_below")


@dataclass(frozen=True)
class Prompt:
    """One line of the file. `scene` is a real scene that the prompt describes (it is not part of the file)."""

    kind: str
    text: str
    seed: int
    scene: Scene

    def row(self) -> dict[str, object]:
        ground, items = self.scene.background, self.scene.items
        return {
            "kind": self.kind,
            "prompt": self.text,
            "seed": self.seed,
            "objects": [THINGS[item.thing_id].name for item in items],
            "colours": [item.tint for item in items],
            "background": [ground.kind, ground.first, ground.second],
        }


def _plain(rng: Random, thing_id: int, background: Background, tint: str = "") -> Scene:
    """One thing of ordinary size in the middle."""
    return Scene(SINGLE, background, (Item(thing_id, 0.5, 0.5, rng.uniform(0.68, 0.78), tint=tint),))


def _of_relation(rng: Random, relation: str, number: int = 2) -> Scene:
    """A random scene of that relation (and number of things), as the training samples them."""
    while (scene := sample_scene(rng)).relation != relation or len(scene.items) != number:
        continue
    return scene


def _objects(rng: Random) -> list[Scene]:
    return [_plain(rng, i, sample_background(rng)) for i in range(len(THINGS))]


def _backgrounds(rng: Random) -> list[Scene]:
    solids = [named_background(rng, "solid", name) for name in SOLIDS]
    scenery = [named_background(rng, kind) for kind in SCENERY]
    patterns = []
    for kind in (*TWO_COLOUR, *TWO_COLOUR):
        first, second = rng.sample(TWO_COLOUR_NAMES, 2)
        patterns.append(named_background(rng, kind, first, second, rng.random() < 0.5))
    return [_plain(rng, rng.randrange(len(THINGS)), ground) for ground in (*solids, *scenery, *patterns)]


def _colours(rng: Random) -> list[Scene]:
    scenes = []
    for tint in TINTS:
        while not tint_is_visible(tint, background := sample_background(rng)):
            continue
        scenes.append(_plain(rng, rng.randrange(len(THINGS)), background, tint))
    return scenes


def _counts(rng: Random) -> list[Scene]:
    return [_of_relation(rng, COUNT, number) for number in (2, 3, 4)]


_MAKERS: dict[str, Callable[[Random], list[Scene]]] = {
    "object": _objects,
    "background": _backgrounds,
    "colour": _colours,
    "count": _counts,
    "left_right": lambda rng: [_of_relation(rng, PAIR_H)],
    "above_below": lambda rng: [_of_relation(rng, PAIR_V)],
}
_ROUNDS = {"object": 2, "background": 4, "colour": 12, "count": 40, "left_right": 80, "above_below": 60}
_TUNING_ROUNDS = {"object": 1, "background": 1, "colour": 2, "count": 8, "left_right": 24, "above_below": 12}


def _compose(seed: int, rounds: dict[str, int]) -> list[Prompt]:
    """All prompts, shuffled, so that the first ones are a fair sample."""
    rng = Random(seed)
    scenes = [
        (kind, replace(scene, style=""))
        for kind, count in rounds.items()
        for _ in range(count)
        for scene in _MAKERS[kind](rng)
    ]
    rng.shuffle(scenes)
    return [Prompt(kind, caption(rng, scene), 1000 + index, scene) for index, (kind, scene) in enumerate(scenes)]


def tuning_prompts() -> list[Prompt]:
    """Other prompts, on which the guidance scale is chosen."""
    return _compose(_TUNING_SEED, _TUNING_ROUNDS)


def evaluation_prompts() -> list[Prompt]:
    """The committed prompts; raises ValueError when the grammar has changed since they were written."""
    prompts = _compose(_SEED, _ROUNDS)
    if PROMPT_FILE.read_text() != _lines(prompts):
        raise ValueError(f"{PROMPT_FILE} differs from what samples.train.image.prompts writes")
    return prompts


def prompts_hash() -> str:
    """SHA-256 of the committed file."""
    return hashlib.sha256(PROMPT_FILE.read_bytes()).hexdigest()


def _lines(prompts: list[Prompt]) -> str:
    return "".join(json.dumps(prompt.row(), ensure_ascii=False) + "\n" for prompt in prompts)


def main() -> None:
    prompts = _compose(_SEED, _ROUNDS)
    PROMPT_FILE.write_text(_lines(prompts))
    print(f"{len(prompts)} prompts, sha256 {prompts_hash()}")


if __name__ == "__main__":
    main()
