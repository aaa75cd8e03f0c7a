"""Pipelines in bfloat16: no further from float32 than diffusers' own are, from the same noise."""

from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline, WanPipeline, ZImagePipeline
from numpy.typing import NDArray
from torch import Tensor

from hemiola.core.request import MediaRequest
from hemiola.diffusion.families import Family, load_family
from hemiola.tests.diffusion.driver import media_request, solo, tiny_family
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir

PIPELINES: dict[str, Any] = {"zimage": ZImagePipeline, "wan": WanPipeline, "flux": FluxPipeline}


def theirs(name: str, family: Family, request: MediaRequest, dtype: torch.dtype) -> NDArray[Any]:
    pipeline = PIPELINES[name].from_pretrained(tiny_pipeline_dir(name), torch_dtype=dtype)
    pipeline.set_progress_bar_config(disable=True)
    options: dict[str, Any] = {"num_frames": request.num_frames} if name == "wan" else {}
    made = pipeline(
        prompt="a red fox",
        negative_prompt="blue",
        width=request.width,
        height=request.height,
        num_inference_steps=request.num_inference_steps,
        guidance_scale=request.guidance_scale,
        latents=noise_for(name, family, request),
        max_sequence_length=family.edge.defaults.max_sequence_length,
        output_type="pt",
        **options,
    )
    frames: Tensor = made.frames[0] if name == "wan" else made.images
    return frames.float().permute(0, 2, 3, 1).numpy()


def noise_for(name: str, family: Family, request: MediaRequest) -> Tensor:
    """As the pipeline takes it."""
    noise = family.noise(request)
    if name == "wan":
        return noise[None]
    channels, _, height, width = noise.shape
    return FluxPipeline._pack_latents(noise, 1, channels, height, width) if name == "flux" else noise[None, :, 0]


def rms(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


@pytest.mark.parametrize("name", FAMILIES)
def test_bfloat16_is_no_further_from_float32_than_in_diffusers(name: str) -> None:
    exact_family = tiny_family(name)
    request = media_request(exact_family, num_inference_steps=2)
    exact = solo(exact_family, request)
    family = load_family(tiny_pipeline_dir(name), dtype=torch.bfloat16)
    ours = rms(solo(family, request), exact)
    reference = rms(theirs(name, exact_family, request, torch.bfloat16), exact)
    assert 0 < ours < 1.25 * reference
