"""Random clips for training: sampled scenes with captions, rendered on the device, kept there as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from samples.train.scenes.captions import caption
from samples.train.scenes.render import Renderer, pack
from samples.train.scenes.sampling import sample_clip
from samples.train.scenes.sprites import load_sprites
from samples.train.scenes.types import SINGLE, Scene


@dataclass(frozen=True)
class Format:
    """Size of a clip in pixels."""

    frames: int = 17
    height: int = 96
    width: int = 96


SHIPPED_FORMAT = Format()


class ClipSource:
    """An endless, seeded stream of clips."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._rng, self.device = Random(seed), device
        self._renderer = Renderer(load_sprites(), device)

    def scenes(self, count: int) -> list[Scene]:
        return [sample_clip(self._rng) for _ in range(count)]

    def captions(self, scenes: Sequence[Scene]) -> list[str]:
        return [caption(self._rng, scene) for scene in scenes]

    @torch.no_grad()
    def render(self, scenes: Sequence[Scene], size: Format = SHIPPED_FORMAT, batch: int = 256) -> Tensor:
        """[N, T, 3, H, W] in 0..255."""
        parts = []
        for first in range(0, len(scenes), batch):
            packed = pack(scenes[first : first + batch])
            clips = self._renderer.clips(packed, size.frames, size.height, size.width)
            parts.append((clips.transpose(1, 2) * 255).round().to(torch.uint8))
        return torch.cat(parts)


def single_scenes(source: ClipSource, count: int) -> list[Scene]:
    """Random clips of one thing."""
    scenes: list[Scene] = []
    while len(scenes) < count:
        scenes += [scene for scene in source.scenes(count) if scene.relation == SINGLE]
    return scenes[:count]


class ClipPool:
    """Clips on the device, drawn at random there and replaced a few at a time."""

    def __init__(self, source: ClipSource, count: int, size: Format = SHIPPED_FORMAT) -> None:
        self._source, self._size, self._next = source, size, 0
        self.clips = source.render(source.scenes(count), size)

    def draw_clips(self, count: int) -> Tensor:
        """[count, T, 3, H, W]; the choice is made on the device."""
        return self.clips[torch.randint(len(self.clips), (count,), device=self.clips.device)]

    def draw_frames(self, count: int) -> Tensor:
        """Single frames as clips of length 1."""
        frames = self.clips.flatten(0, 1)
        return frames[torch.randint(len(frames), (count,), device=frames.device)][:, None]

    def replace(self, count: int) -> None:
        """Renders `count` new clips over the oldest ones, in place."""
        count = min(count, len(self.clips) - self._next)
        self.clips[self._next : self._next + count] = self._source.render(self._source.scenes(count), self._size)
        self._next = (self._next + count) % len(self.clips)
