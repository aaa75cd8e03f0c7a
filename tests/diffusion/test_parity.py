"""Final pixels against diffusers' own pipelines, as float arrays, with the same CPU generator."""

from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline, ZImagePipeline
from numpy.typing import NDArray

from hemiola.core.request import MediaRequest
from hemiola.diffusion.families import Family
from hemiola.tests.diffusion.driver import assert_close, media_request, one_block, solo, tiny_family
from hemiola.tests.tiny_diffusion import tiny_pipeline_dir

PARITY = 1e-4


def theirs(pipeline: Any, family: Family, request: MediaRequest, prompt: str, negative: str) -> NDArray[Any]:
    """[num_frames, height, width, 3]."""
    pipeline.set_progress_bar_config(disable=True)
    options: dict[str, Any] = {"num_frames": request.num_frames} if family.edge.kind == "video" else {}
    output = pipeline(
        prompt=prompt,
        negative_prompt=negative,
        width=request.width,
        height=request.height,
        num_inference_steps=request.num_inference_steps,
        guidance_scale=request.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(request.seed),
        max_sequence_length=family.edge.defaults.max_sequence_length,
        output_type="np",
        **options,
    )
    frames: NDArray[Any] = output.frames[0] if family.edge.kind == "video" else output.images
    return frames


@pytest.fixture(scope="module")
def zimage() -> Any:
    return ZImagePipeline.from_pretrained(tiny_pipeline_dir("zimage"))


@pytest.fixture(scope="module")
def wan() -> Any:
    return WanPipeline.from_pretrained(tiny_pipeline_dir("wan"))


LONG = "a very long caption about " + "colours and shapes, " * 2


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ("a red fox", {}),
        ("a red fox", {"guidance_scale": 0.0, "num_inference_steps": 4}),
        ("a blue ball", {"width": 24, "height": 40, "seed": 3}),  # 15 patches, 17 padding tokens
        (LONG, {"width": 64, "height": 64, "num_inference_steps": 2}),  # captions of different padded length
        ("", {"width": 8, "height": 8, "num_inference_steps": 1}),
    ],
)
def test_pictures_equal_diffusers(zimage: Any, prompt: str, fields: dict[str, Any]) -> None:
    family = tiny_family("zimage")
    request = media_request(family, prompt=prompt, **fields)
    assert_close(solo(family, request), theirs(zimage, family, request, prompt, "blue"), PARITY)


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ("a red fox", {}),
        ("a red fox", {"guidance_scale": 1.0, "num_frames": 1, "num_inference_steps": 2}),
        ("a blue  ball &amp; more", {"num_frames": 13, "width": 16, "height": 48, "num_inference_steps": 4}),
        ("", {"num_frames": 9, "num_inference_steps": 2, "guidance_scale": 6.0}),
    ],
)
def test_all_frames_of_clips_equal_diffusers(wan: Any, prompt: str, fields: dict[str, Any]) -> None:
    family = tiny_family("wan")
    request = media_request(family, prompt=prompt, **fields)
    assert_close(solo(family, request), theirs(wan, family, request, prompt, "blue"), PARITY)


@pytest.mark.parametrize("name", ["zimage", "wan"])
def test_a_model_that_ignored_its_prompt_or_seed_would_not_pass(name: str) -> None:
    family = tiny_family(name)
    base = solo(family, media_request(family))
    for fields in ({"prompt": "zzz"}, {"negative": "zzz"}, {"seed": 8}, {"guidance_scale": 2.0}):
        assert np.abs(solo(family, media_request(family, **fields)) - base).max() > 100 * PARITY, fields


@pytest.mark.parametrize("name", ["zimage", "wan"])
def test_a_step_cut_at_every_block_gives_the_same_bits(name: str) -> None:
    family = tiny_family(name)
    request = media_request(family)
    assert np.array_equal(solo(family, request, one_block), solo(family, request))
