"""The evaluation prompts of the video model: `python -m samples.train.video.prompts` writes evaluation.jsonl.

The file is committed before the final training. Every thing appears equally often, and so does every motion; wording,
colour and background are random, from a seed that no training uses. Each line says what the prompt asks for.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from samples.train.scenes.captions import caption
from samples.train.scenes.motion import MOTIONS
from samples.train.scenes.objects import VIDEO_IDS
from samples.train.scenes.sampling import sample_clip
from samples.train.scenes.types import SINGLE, Scene

PROMPT_FILE = Path(__file__).with_name("evaluation.jsonl")
_SEED, _TUNING_SEED = 20_000_003, 20_000_004
_ROUNDS = 3
"""How often each thing is asked for alone."""
_PAIRS = 48


@dataclass(frozen=True)
class Prompt:
    """One line of the file; `things` are indices into THINGS, left to right."""

    text: str
    seed: int
    things: tuple[int, ...]
    motions: tuple[str, ...]
    tints: tuple[str, ...]
    background: tuple[str, str, str]

    @classmethod
    def of(cls, rng: Random, scene: Scene, seed: int) -> Prompt:
        ground, items = scene.background, scene.items
        return cls(
            caption(rng, scene),
            seed,
            tuple(item.thing_id for item in items),
            tuple(item.motion for item in items),
            tuple(item.tint for item in items),
            (ground.kind, ground.first, ground.second),
        )


def _alone(rng: Random, thing: int, motion: str) -> Scene:
    while (scene := sample_clip(rng, (thing, thing + 1))).relation != SINGLE or scene.items[0].thing_id != thing:
        continue
    return replace(scene, items=(replace(scene.items[0], motion=motion),))


def compose(seed: int, rounds: int, pairs: int) -> list[Prompt]:
    """Single things first (in random order), then pairs."""
    rng = Random(seed)
    things = list(VIDEO_IDS) * rounds
    motions = [MOTIONS[i % len(MOTIONS)] for i in range(len(things))]
    rng.shuffle(things)
    rng.shuffle(motions)
    scenes = [_alone(rng, thing, motion) for thing, motion in zip(things, motions, strict=True)]
    while len(scenes) < len(things) + pairs:
        scene = sample_clip(rng)
        if scene.relation != SINGLE:
            scenes.append(scene)
    return [Prompt.of(rng, scene, 1000 + index) for index, scene in enumerate(scenes)]


def tuning_prompts() -> list[Prompt]:
    """Other prompts, on which the guidance scale is chosen."""
    return compose(_TUNING_SEED, 1, 0)


def load_prompts() -> list[Prompt]:
    """The committed prompts."""
    rows = [json.loads(line) for line in PROMPT_FILE.read_text().splitlines()]
    return [
        Prompt(
            row["text"],
            row["seed"],
            tuple(row["things"]),
            tuple(row["motions"]),
            tuple(row["tints"]),
            tuple(row["background"]),
        )
        for row in rows
    ]


def prompts_hash() -> str:
    """SHA-256 of the committed file."""
    return hashlib.sha256(PROMPT_FILE.read_bytes()).hexdigest()


def main() -> None:
    prompts = compose(_SEED, _ROUNDS, _PAIRS)
    PROMPT_FILE.write_text("".join(json.dumps(prompt.__dict__) + "\n" for prompt in prompts))
    print(f"{len(prompts)} prompts, sha256 {prompts_hash()}")


if __name__ == "__main__":
    main()
