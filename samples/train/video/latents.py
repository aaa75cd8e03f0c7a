"""Clips as the denoiser sees them: normalised latents and token ids, encoded once and kept on the device."""

from __future__ import annotations

import time

import torch
from diffusers import AutoencoderKLWan
from torch import Tensor
from transformers import T5Tokenizer

from samples.train.video.clips import ClipSource, Format
from samples.train.video.models import LATENT_CHANNELS, TEXT_SLOTS
from samples.train.video.sequence import SequenceVae
from samples.train.video.text import encode


class LatentEncoder:
    """A frozen autoencoder in the device's compute type: bytes -> normalised latents."""

    def __init__(self, vae: AutoencoderKLWan, device: torch.device) -> None:
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._sequence = SequenceVae(vae.to(device, self._dtype))
        statistics = torch.tensor([vae.config.latents_mean, vae.config.latents_std], device=device)
        self._mean, self._std = statistics[:, :, None, None]

    @torch.no_grad()
    def __call__(self, clips_BTCHW: Tensor) -> Tensor:
        """[B, T, 3, H, W] bytes -> posterior means [B, t, C, h, w] in float16, normalised per channel."""
        moments = self._sequence.encode((clips_BTCHW.float() / 127.5 - 1).to(self._dtype))
        latents: Tensor = ((moments[:, :, :LATENT_CHANNELS].float() - self._mean) / self._std).half()
        return latents


class LatentPool:
    """`count` encoded clips of one format; `replace` overwrites the oldest."""

    def __init__(
        self, source: ClipSource, encoder: LatentEncoder, tokenizer: T5Tokenizer, size: Format, count: int
    ) -> None:
        self._source, self._encoder, self._tokenizer, self._size = source, encoder, tokenizer, size
        device, frames = source.device, 1 + (size.frames - 1) // 4
        self.latents = torch.zeros(
            count, LATENT_CHANNELS, frames, size.height // 8, size.width // 8, dtype=torch.float16, device=device
        )
        self.ids = torch.zeros(count, TEXT_SLOTS, dtype=torch.int16, device=device)
        self.lengths = torch.ones(count, dtype=torch.int16, device=device)
        self._next = 0

    def fill(self, limit_s: float, batch: int = 512) -> int:
        """Encodes until the pool is full or the time is over; an early end shrinks the pool. Returns its size."""
        start, done = time.monotonic(), 0
        while done < len(self.ids) and (done == 0 or time.monotonic() - start < limit_s):
            done += self.replace(batch)
        self.latents, self.ids, self.lengths = self.latents[:done], self.ids[:done], self.lengths[:done]
        self._next = 0
        return done

    def replace(self, count: int) -> int:
        """Encodes at most `count` new clips over the oldest ones, in place; returns how many."""
        count = min(count, len(self.ids) - self._next)
        scenes = self._source.scenes(count)
        ids, lengths = encode(self._tokenizer, self._source.captions(scenes))
        latents = self._encoder(self._source.render(scenes, self._size)).transpose(1, 2)
        rows = slice(self._next, self._next + count)
        self.latents[rows], self.ids[rows], self.lengths[rows] = (
            latents,
            ids.to(self.ids.device),
            lengths.to(self.ids.device),
        )
        self._next = (self._next + count) % len(self.ids)
        return count
