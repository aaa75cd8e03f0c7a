"""Seconds per picture through the engine, against diffusers' pipeline with the same weights and encoder."""

import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from diffusers import ZImagePipeline

from hemiola.core.hub import DEMO_MODELS, resolve_all

from ..engine import Engine
from ..export import export_model
from .report import Report, cost, in_turn, machine_name, seconds

MODEL = "hemiola-tiny-image"
NUM_PICTURES = 4
PROMPTS = ("a red apple", "a blue cat on a beach", "two green trees", "a dog to the left of a house")


def run(*, repeats: int, threads: int) -> Report:
    """One picture alone, and four at once against one batch of four and against one by one."""
    with tempfile.TemporaryDirectory() as folder, Engine(MODEL, threads=threads) as engine:
        torch.set_num_threads(threads)
        pipeline = _stock_pipeline(Path(folder) / "image")
        defaults = engine.fronts[MODEL].edge.defaults  # type: ignore[union-attr]  # it is a MediaFront
        rng = random.Random(0)

        def ours(count: int) -> float:
            """Each prompt is new, so that no condition is found in the cache."""
            prompts = _prompts(rng, count)
            return seconds(lambda: [s.result() for s in [engine.stream_image(p, seed=1) for p in prompts]])

        def theirs(prompts: list[str]) -> float:
            return seconds(lambda: _generate(pipeline, prompts, defaults))

        alone, alone_theirs, four, four_batched, four_single = in_turn(
            [
                lambda: ours(1),
                lambda: theirs(_prompts(rng, 1)),
                lambda: ours(NUM_PICTURES),
                lambda: theirs(_prompts(rng, NUM_PICTURES)),
                lambda: sum(theirs([prompt]) for prompt in _prompts(rng, NUM_PICTURES)),
            ],
            repeats,
        )
    scenarios = (
        cost("one picture against the pipeline", alone, "s", alone_theirs, 1.0),
        cost("4 at once against one batch of 4", four, "s", four_batched, 1.0),
        cost("4 at once against one by one", four, "s", four_single, 1.1),
    )
    return Report("image", machine_name(), "float32", threads, scenarios)


def _stock_pipeline(folder: Path) -> Any:
    served = resolve_all(DEMO_MODELS)
    (source,) = [each for each in served if each.name == MODEL]
    export_model(source, served, folder)
    pipeline = ZImagePipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _prompts(rng: random.Random, count: int) -> list[str]:
    return [f"{PROMPTS[i % len(PROMPTS)]} {rng.randrange(10**6)}" for i in range(count)]


def _generate(pipeline: Any, prompts: list[str], defaults: Any) -> None:
    pipeline(
        list(prompts),
        negative_prompt=[""] * len(prompts),
        width=defaults.width,
        height=defaults.height,
        num_inference_steps=defaults.num_inference_steps,
        guidance_scale=defaults.guidance_scale,
        max_sequence_length=defaults.max_sequence_length,
        generator=torch.Generator("cpu").manual_seed(1),
    )
