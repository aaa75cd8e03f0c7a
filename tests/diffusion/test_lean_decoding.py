"""Decoding that spares memory gives what decoding on a CPU gives, however steps are cut and rows are joined."""

from functools import partial
from typing import Any

import pytest
import torch

from hemiola.diffusion import stripes
from hemiola.diffusion.families import load_family, wan
from hemiola.diffusion.stage import Clean
from hemiola.diffusion.vae_2d import Decode2d
from hemiola.diffusion.vae_wan import DecodeWan
from hemiola.tests.diffusion.driver import Cut, Driver, assert_close, media_request, one_block, solo, tiny_family, whole
from hemiola.tests.tiny_diffusion import tiny_flux, tiny_pipeline_dir, tiny_wan

Stage = type[DecodeWan] | type[Decode2d]


def vae_of(stage: Stage) -> Any:
    return (tiny_wan() if stage is DecodeWan else tiny_flux()).vae.eval()


def decoded(stage: Any, latents: list[torch.Tensor]) -> list[torch.Tensor]:
    rows = [Clean(each) for each in latents]
    with torch.inference_mode():
        carry = stage.open(rows)
        shape = latents[0].shape if isinstance(stage, DecodeWan) else (latents[0].shape[0], *latents[0].shape[2:])
        for block in stage.blocks(tuple(shape)):
            block.run(carry)
        return list(stage.close(carry, rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stage", [DecodeWan, Decode2d])
@pytest.mark.parametrize("num_rows", [1, 2])
def test_sparing_memory_changes_no_pixel_beyond_rounding(
    stage: Stage, dtype: torch.dtype, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripes, "STRIPE_PIXELS", 96)  # uneven stripes, also within repeated pixels
    vae = vae_of(stage).to(dtype)
    channels = vae.config.z_dim if stage is DecodeWan else vae.config.latent_channels
    frames = 4 if stage is DecodeWan else 1
    latents = [
        torch.randn(channels, frames, 6, 10, generator=torch.Generator().manual_seed(i)) for i in range(num_rows)
    ]
    usual, lean = (decoded(stage(vae, is_lean=is_lean), latents) for is_lean in (False, True))
    for ours, theirs in zip(lean, usual, strict=True):
        assert ours.shape == theirs.shape and theirs.std() > 0.01
        assert (ours - theirs).abs().max() <= (1e-5 if dtype == torch.float32 else 4e-2)
        assert (ours - theirs).abs().mean() <= (1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("cut", [whole, one_block, lambda cut: min(cut.first + 6, cut.last)])
def test_caches_that_are_written_over_are_each_rows_own_however_steps_are_cut(
    cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wan, "DecodeWan", partial(DecodeWan, is_lean=True))
    family = load_family(tiny_pipeline_dir("wan"))
    assert any(block.is_kept for block in family.decode.blocks((4, 4, 4, 6)))
    requests = [media_request(family, name, num_frames=13, seed=i) for i, name in enumerate("ab")]
    driver = Driver(family)
    states = [driver.admit(request) for request in requests]
    for state in states:
        driver.step_until(state, "decode")
    decodes = {state: driver.plan([state], one_block) for state in states}  # both are open, and in turns from here
    while decodes:
        for state, batch in list(decodes.items()):
            driver.launch(batch)
            if state.is_released:
                del decodes[state]
            else:
                decodes[state] = driver.plan([state], cut)
    driver.assert_nothing_is_held()
    for request in requests:
        assert_close(driver.frames(request.id), solo(tiny_family("wan"), request), 1e-5)


@pytest.mark.parametrize(("most", "together"), [(48 * 32 * 2, 2), (48 * 32 * 4, 3), (16 * 16, 1)])
@pytest.mark.parametrize("name", ["wan", "flux"])
def test_rows_have_no_more_pixels_together_than_one_request_may(name: str, most: int, together: int) -> None:
    family = load_family(tiny_pipeline_dir(name))
    driver = Driver(family)
    states = [driver.admit(media_request(family, str(i), seed=i)) for i in range(3)]
    family.edge.restrict(most, 161)  # to less than is there, too: one always goes
    assert len(driver.plan(states).states) == together
