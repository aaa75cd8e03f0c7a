"""Training data of the denoiser, on the device: latents of many scenes and hidden states of their captions.

One pool per picture size and caption length. Encoded once at the start of a run; a step draws rows from it.
"""

from dataclasses import dataclass

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from samples.train.image.models import LATENT_FACTOR
from samples.train.image.pictures import PictureSource, to_signed
from samples.train.image.text import SLOTS, CaptionEncoder
from samples.train.scenes.types import Scene

WORDINGS = 2
"""Captions for each scene."""


@dataclass(frozen=True)
class Bucket:
    """Pictures of one size (pixels) with captions of one padded length; share is the share of steps."""

    height: int
    width: int
    slots: int
    share: float
    batch: int
    scenes: int


def buckets(batch: int, scenes: int) -> tuple[Bucket, ...]:
    """The native size first. Side buckets teach other sizes, and captions of up to 64 tokens."""
    side = max(scenes // 20, 4)
    return (
        Bucket(128, 128, SLOTS, 0.72, batch, scenes),
        Bucket(128, 128, 2 * SLOTS, 0.08, batch, side),
        Bucket(96, 96, SLOTS, 0.05, batch, side),
        Bucket(160, 160, SLOTS, 0.04, batch // 2, side),
        Bucket(192, 192, SLOTS, 0.03, batch // 2, side),
        Bucket(128, 192, SLOTS, 0.04, batch // 2, side),
        Bucket(192, 128, SLOTS, 0.04, batch // 2, side),
    )


@dataclass(frozen=True)
class LatentPool:
    """latents [N, C, h, w] float16, scaled; text [N * WORDINGS, slots, D] and its lengths, WORDINGS rows a scene."""

    latents: Tensor
    text: Tensor
    lengths: Tensor

    def draw(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """(latents, text, lengths) of random scenes; the choice is made on the device."""
        rows = torch.randint(len(self.latents), (count,), device=self.latents.device)
        worded = rows * WORDINGS + torch.randint(WORDINGS, (count,), device=rows.device)
        return self.latents[rows].float(), self.text[worded], self.lengths[worded]


@torch.no_grad()
def encode_pictures(vae: AutoencoderKL, images_N3HW: Tensor, batch: int = 256) -> Tensor:
    """float16 latents as the pipeline scales them (its decoder undoes latents / scaling_factor + shift_factor)."""
    dtype, parts = next(vae.parameters()).dtype, []
    for part in images_N3HW.split(batch):
        mode = vae.encode(to_signed(part).to(dtype)).latent_dist.mode().float()
        parts.append(((mode - vae.config.shift_factor) * vae.config.scaling_factor).half())
    return torch.cat(parts)


def captioned(
    source: PictureSource, encoder: CaptionEncoder, scenes: list[Scene], slots: int
) -> list[list[int] | None]:
    """Ids of a caption that fits the slots for each scene, worded up to ten times; None where none fitted."""
    captions: list[list[int] | None] = [None] * len(scenes)
    missing = list(range(len(scenes)))
    for _ in range(10):
        for i, ids in zip(missing, encoder.tokenize(source.captions([scenes[i] for i in missing])), strict=True):
            captions[i] = ids if len(ids) <= slots else None
        missing = [i for i in missing if captions[i] is None]
        if not missing:
            break
    return captions


def build_pool(source: PictureSource, vae: AutoencoderKL, encoder: CaptionEncoder, bucket: Bucket) -> LatentPool:
    """Samples, renders and encodes the bucket's scenes."""
    scenes = source.scenes(bucket.scenes)
    wordings = list(zip(*(captioned(source, encoder, scenes, bucket.slots) for _ in range(WORDINGS)), strict=True))
    scenes = [scene for scene, captions in zip(scenes, wordings, strict=True) if None not in captions]
    fitting = [ids for captions in wordings if None not in captions for ids in captions if ids is not None]
    text, lengths = encoder(fitting, bucket.slots)
    parts = []
    for first in range(0, len(scenes), 4096):
        images = source.render(scenes[first : first + 4096], bucket.height, bucket.width)
        parts.append(encode_pictures(vae, images))
    latents = torch.cat(parts)
    assert latents.shape[2:] == (bucket.height // LATENT_FACTOR, bucket.width // LATENT_FACTOR)
    return LatentPool(latents, text, lengths)
