"""The whole-clip forward of the video VAE gives the numbers of diffusers' chunked encode and decode."""

from __future__ import annotations

import pytest
import torch
from diffusers import AutoencoderKLWan

from samples.train.video.sequence import SequenceVae, inflate_from_images


def tiny_vae() -> AutoencoderKLWan:
    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=8,
        decoder_base_dim=4,
        z_dim=4,
        dim_mult=[1, 2, 4, 4],
        num_res_blocks=1,
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    for parameter in vae.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return vae.eval()


@pytest.mark.parametrize("frames", [1, 5, 9, 17])
def test_encoding_a_whole_clip_equals_the_chunked_encoding(frames: int) -> None:
    vae = tiny_vae()
    clip = torch.rand(2, 3, frames, 32, 16) * 2 - 1
    with torch.no_grad():
        expected = vae.encode(clip).latent_dist.parameters
        moments = SequenceVae(vae).encode(clip.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(moments, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("latent_frames", [1, 2, 3, 5])
def test_decoding_a_whole_clip_equals_the_chunked_decoding(latent_frames: int) -> None:
    vae = tiny_vae()
    z = torch.randn(2, 4, latent_frames, 4, 2)
    with torch.no_grad():
        expected = vae.decode(z).sample
        pixels = SequenceVae(vae).decode(z.transpose(1, 2)).transpose(1, 2).clamp(-1, 1)
    assert expected.std() > 0.05
    torch.testing.assert_close(pixels, expected, rtol=1e-4, atol=1e-5)


def test_an_inflated_vae_treats_a_still_clip_as_one_picture() -> None:
    vae = tiny_vae()
    inflate_from_images(vae)
    clip = (torch.rand(1, 1, 3, 32, 32) * 2 - 1).expand(-1, 9, -1, -1, -1)
    sequence = SequenceVae(vae)
    with torch.no_grad():
        moments = sequence.encode(clip)
        single = sequence.encode(clip[:, :1])
        torch.testing.assert_close(moments, single.expand_as(moments), rtol=1e-4, atol=1e-5)
        z, z_single = moments[:, :, :4], single[:, :, :4]
        pixels = sequence.decode(z)
        torch.testing.assert_close(pixels, sequence.decode(z_single).expand_as(pixels), rtol=1e-4, atol=1e-5)


def test_gradients_of_the_whole_clip_forward_reach_every_parameter() -> None:
    vae = tiny_vae()
    clip, moments = SequenceVae(vae)(torch.rand(1, 9, 3, 16, 16) * 2 - 1, lambda m: m.chunk(2, dim=2)[0])
    (clip.square().mean() + moments.square().mean()).backward()
    missing = [name for name, p in vae.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []
