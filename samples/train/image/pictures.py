"""Random captioned pictures for training and evaluation: sampled scenes, rendered on the device, kept as bytes."""

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from samples.train.scenes.captions import caption
from samples.train.scenes.render import Renderer, pack
from samples.train.scenes.sampling import sample_scene
from samples.train.scenes.sprites import load_sprites
from samples.train.scenes.types import Scene

HELD_OUT_SEED = 10**9
"""Scenes with this seed are for measuring only."""


class PictureSource:
    """An endless, seeded stream of scenes, with captions and pixels."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._rng, self.device = Random(seed), device
        self._renderer = Renderer(load_sprites(), device)

    def scenes(self, count: int) -> list[Scene]:
        return [sample_scene(self._rng) for _ in range(count)]

    def captions(self, scenes: Sequence[Scene]) -> list[str]:
        return [caption(self._rng, scene) for scene in scenes]

    @torch.no_grad()
    def render(self, scenes: Sequence[Scene], height: int, width: int, batch: int = 512) -> Tensor:
        """uint8 [N, 3, height, width]."""
        parts = []
        for first in range(0, len(scenes), batch):
            images = self._renderer.stills(pack(scenes[first : first + batch]), height, width)
            parts.append((images * 255).round().clamp(0, 255).to(torch.uint8))
        return torch.cat(parts)


def to_signed(images_N3HW: Tensor) -> Tensor:
    """Bytes to float in [-1, 1], the scale of the autoencoder."""
    return images_N3HW.float() / 127.5 - 1
