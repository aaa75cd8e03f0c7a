"""Final pixels against diffusers' own pipelines, as float arrays, with the same CPU generator."""

from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline, WanPipeline, ZImagePipeline
from numpy.typing import NDArray

from hemiola.core.request import MediaRequest
from hemiola.diffusion.families import Family
from hemiola.tests.diffusion.driver import Driver, assert_close, media_request, one_block, solo, tiny_family
from hemiola.tests.tiny_diffusion import FAMILIES, tiny_pipeline_dir

PARITY = 1e-4


def theirs(
    pipeline: Any, family: Family, request: MediaRequest, prompt: str, negative: str, output: str = "np", **options: Any
) -> NDArray[Any]:
    """[num_frames, height, width, 3], or latents."""
    pipeline.set_progress_bar_config(disable=True)
    if family.edge.kind == "video":
        options["num_frames"] = request.num_frames
    made = pipeline(
        prompt=prompt,
        negative_prompt=negative,
        width=request.width,
        height=request.height,
        num_inference_steps=request.num_inference_steps,
        guidance_scale=request.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(request.seed),
        max_sequence_length=family.edge.defaults.max_sequence_length,
        output_type=output,
        **options,
    )
    frames: NDArray[Any] = made.frames[0] if family.edge.kind == "video" else made.images
    return frames


@pytest.fixture(scope="module")
def zimage() -> Any:
    return ZImagePipeline.from_pretrained(tiny_pipeline_dir("zimage"))


@pytest.fixture(scope="module")
def wan() -> Any:
    return WanPipeline.from_pretrained(tiny_pipeline_dir("wan"))


@pytest.fixture(scope="module")
def flux() -> Any:
    return FluxPipeline.from_pretrained(tiny_pipeline_dir("flux"))


@pytest.fixture(scope="module")
def schnell() -> Any:
    return FluxPipeline.from_pretrained(tiny_pipeline_dir("schnell"))


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


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ("a red fox", {}),
        ("a red fox", {"guidance_scale": 0.0, "num_inference_steps": 4}),
        ("a Blue ball", {"width": 24, "height": 40, "seed": 3}),
        (LONG, {"width": 64, "height": 64, "num_inference_steps": 2}),  # more than either encoder takes
        ("", {"width": 8, "height": 8, "num_inference_steps": 1}),
    ],
)
def test_pictures_with_embedded_guidance_equal_diffusers(flux: Any, prompt: str, fields: dict[str, Any]) -> None:
    family = tiny_family("flux")
    request = media_request(family, prompt=prompt, **fields)
    assert_close(solo(family, request), theirs(flux, family, request, prompt, "blue"), PARITY)


@pytest.mark.parametrize("guidance_scale", [0.0, 1.0, 2.5])
def test_pictures_of_a_model_without_guidance_are_guided_by_the_negative_prompt(
    schnell: Any, guidance_scale: float
) -> None:
    family = tiny_family("schnell")
    request = media_request(family, prompt="a red fox", guidance_scale=guidance_scale)
    reference = theirs(schnell, family, request, "a red fox", "blue", true_cfg_scale=guidance_scale)
    assert_close(solo(family, request), reference, PARITY)
    assert len(family.prompts(request)) == (2 if guidance_scale > 1 else 1)


@pytest.mark.parametrize("name", ["flux", "zimage"])
def test_latents_equal_diffusers(name: str, request: pytest.FixtureRequest) -> None:
    family = tiny_family(name)
    asked = media_request(family, width=64, height=24, num_inference_steps=4)
    driver = Driver(family)
    state = driver.admit(asked)
    driver.step_until(state, "decode")
    ours = state.tensors(state.num_done)[0].squeeze(1)
    reference = torch.as_tensor(theirs(request.getfixturevalue(name), family, asked, "a red fox", "blue", "latent"))[0]
    if name == "flux":
        reference = FluxPipeline._unpack_latents(reference[None], 24, 64, 4)[0]
    assert (ours - reference).abs().max() <= PARITY


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_that_ignored_its_prompt_or_seed_would_not_pass(name: str) -> None:
    family = tiny_family(name)
    base = solo(family, media_request(family))
    changes: list[dict[str, Any]] = [{"prompt": "zzz"}, {"seed": 8}, {"guidance_scale": 2.0}]
    if family.edge.is_guided(3.0):
        changes.append({"negative": "zzz"})
    for fields in changes:
        assert np.abs(solo(family, media_request(family, **fields)) - base).max() > 100 * PARITY, fields


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_cut_at_every_block_gives_the_same_bits(name: str) -> None:
    family = tiny_family(name)
    request = media_request(family)
    assert np.array_equal(solo(family, request, one_block), solo(family, request))
