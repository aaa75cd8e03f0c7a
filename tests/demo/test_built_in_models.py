"""The models that ship: they load in stock transformers and diffusers, and the engine gives what those give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline, ZImagePipeline
from transformers import AutoModelForCausalLM, AutoTokenizer

from hemiola import Engine
from hemiola.api.export import export_model
from hemiola.api.front.media import MediaFront
from hemiola.core.hub import DEMO_MODELS, check_weights, resolve_all
from hemiola.diffusion import media

QUESTION = [{"role": "user", "content": "Come up with a scene for a picture book about a fox."}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("demo", threads=1) as made:
        yield made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """As `hemiola export-demo` writes them."""
    served = resolve_all(DEMO_MODELS)
    root = tmp_path_factory.mktemp("exported")
    for source in served:
        export_model(source, served, root / source.name)
    return {source.name: root / source.name for source in served}


def test_they_are_small_and_whole() -> None:
    sources = resolve_all(["demo"])
    assert [source.name for source in sources] == list(DEMO_MODELS)
    assert sum(check_weights(source).num_bytes for source in sources) < 75e6
    assert check_weights(sources[0]).num_params <= 16e6


def test_greedy_answers_equal_transformers(engine: Engine, folders: dict[str, Path]) -> None:
    folder = folders["hemiola-tiny-chat"]
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    ids = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        theirs = model.generate(**ids, max_new_tokens=64, do_sample=False)[0, ids["input_ids"].shape[1] :].tolist()
    ours = engine.chat(QUESTION, temperature=0.0, max_tokens=64).answers[0]
    ends = [i for i, token in enumerate(theirs) if token in (tokenizer.eos_token_id, tokenizer.pad_token_id)]
    assert list(ours.token_ids) == theirs[: ends[0]] if ends else theirs
    assert ours.text == tokenizer.decode(ours.token_ids, skip_special_tokens=True)


def test_a_turns_prompt_begins_with_the_whole_turn_before(engine: Engine) -> None:
    first = engine.chat(QUESTION, temperature=0.0)
    messages: list[dict[str, Any]] = [
        *QUESTION,
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "Now write an image prompt for this scene."},
    ]
    second = engine.chat(messages, temperature=0.0)
    page_len = 4
    whole_turn = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.cached_tokens >= whole_turn - page_len
    assert second.text


def test_the_context_is_as_long_as_promised(engine: Engine) -> None:
    front = engine.fronts["hemiola-tiny-chat"]
    assert getattr(front, "context_len", 0) >= 4096


def options(engine: Engine, model: str) -> dict[str, Any]:
    front = engine.fronts[model]
    assert isinstance(front, MediaFront)
    defaults = front.edge.defaults
    return {
        "width": defaults.width,
        "height": defaults.height,
        "guidance_scale": defaults.guidance_scale,
        "max_sequence_length": defaults.max_sequence_length,
        "generator": torch.Generator("cpu").manual_seed(5),
        "output_type": "np",
    }


def test_pictures_equal_diffusers(engine: Engine, folders: dict[str, Path]) -> None:
    pipe = ZImagePipeline.from_pretrained(folders["hemiola-tiny-image"], dtype=torch.float32, local_files_only=True)
    theirs = pipe("a red fox on a beach", num_inference_steps=3, **options(engine, "hemiola-tiny-image")).images[0]
    ours = engine.image("a red fox on a beach", num_inference_steps=3, seed=5, pixel_type="float32")
    assert np.abs(media.to_numpy(ours.pictures[0].pixels)[0] - theirs).max() <= 1e-4


def test_clips_equal_diffusers(engine: Engine, folders: dict[str, Path]) -> None:
    pipe = WanPipeline.from_pretrained(folders["hemiola-tiny-video"], dtype=torch.float32, local_files_only=True)
    prompt = "a rocket moving to the right"
    theirs = pipe(prompt, num_frames=17, num_inference_steps=2, **options(engine, "hemiola-tiny-video")).frames[0]
    ours = engine.video(prompt, num_inference_steps=2, seed=5, pixel_type="float32")
    assert ours.array.shape == (17, 96, 96, 3)
    assert np.abs(ours.array - theirs).max() <= 1e-4


def test_pictures_of_other_sizes_work(engine: Engine) -> None:
    picture = engine.image("two apples", size="96x160", num_inference_steps=2, seed=1)
    assert picture.image.size == (96, 160)
