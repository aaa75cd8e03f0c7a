"""The decode stage over diffusers' AutoencoderKL, cut at its residual blocks and upsamplers.

Only the decoder's modules are kept. Shape suffixes: R rows, C channels, H and W of the module at hand.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from hemiola.core.errors import UnsupportedModel
from hemiola.core.step import Work

from .stage import Block, Carry, Clean, conv_work
from .stripes import resolved, upsampled


@dataclass(frozen=True, slots=True)
class _Part:
    """Modules that run together: `scale` is what their input's sides are to the latents', `grows` how they leave it,
    `attends` whether there is attention among them, of each position to all."""

    run: Callable[[Tensor], Tensor]
    modules: tuple[nn.Module, ...]
    scale: int
    grows: int
    channels: int
    attends: bool = False

    def work(self, latent_pixels: int) -> Work:
        weights = [p for m in self.modules for p in m.parameters() if p.dim() > 1]
        positions = latent_pixels * (self.scale * self.grows) ** 2
        channels = sum(p.shape[0] + p.shape[1] for p in weights)
        work = conv_work(positions * sum(p.numel() for p in weights), positions * channels)
        return work._replace(attended_pairs=positions**2) if self.attends else work


class Decode2d:
    """Rows of one batch have equal sizes.

    Args:
        is_lean: whether to spare memory (see `stripes`); None: everywhere but on a CPU.
    """

    name = "decode"

    def __init__(self, vae: Any, *, is_lean: bool | None = None) -> None:
        config = vae.config
        if config.latents_mean is not None or config.latents_std is not None:
            raise UnsupportedModel("AutoencoderKL: 'latents_mean' and 'latents_std' are not supported.")
        self._scaling: float = config.scaling_factor
        self._shift: float = config.shift_factor or 0.0
        self._quant: nn.Module | None = vae.post_quant_conv
        self._decoder = vae.decoder
        self._dtype = vae.dtype
        is_lean = vae.device.type != "cpu" if is_lean is None else is_lean
        self._resolve = resolved if is_lean else _resolve
        self._upsample = upsampled if is_lean else _upsample
        self._parts = self._cut(vae.decoder)
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)

    def batch_key(self, shape: tuple[int, ...]) -> Hashable:
        return shape

    def carried(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        latent_pixels = shape[-2] * shape[-1]
        sizes = [part.channels * latent_pixels * (part.scale * part.grows) ** 2 for part in self._parts]
        return {"x": max(sizes) * self._dtype.itemsize}

    def open(self, rows: Sequence[Clean]) -> Carry:
        latents = torch.stack([row.latents.squeeze(1) for row in rows]).to(self._dtype)
        return Carry({"x": latents / self._scaling + self._shift}, tuple(latents.shape))

    def close(self, carry: Carry, rows: Sequence[Clean]) -> Sequence[Tensor]:
        pictures = (carry.tensors["x"].float() * 0.5).add_(0.5).clamp_(0, 1)
        return pictures.permute(0, 2, 3, 1).unsqueeze(1).unbind()

    def _make_blocks(self, shape: tuple[int, ...]) -> Sequence[Block]:
        latent_pixels = shape[-2] * shape[-1]
        return tuple(Block(partial(_run, part.run), part.work(latent_pixels)) for part in self._parts)

    def _cut(self, decoder: Any) -> Sequence[_Part]:
        middle = decoder.mid_block
        wide = decoder.conv_in.out_channels
        first = middle.resnets[0]
        parts = [_Part(partial(self._enter, first), (decoder.conv_in, first), 1, 1, wide)]
        for attention, resnet in zip(middle.attentions, middle.resnets[1:], strict=True):
            modules = (resnet,) if attention is None else (attention, resnet)
            run = partial(self._attend_and_resolve, attention, resnet)
            parts.append(_Part(run, modules, 1, 1, wide, attends=attention is not None))
        scale = 1
        for up_block in decoder.up_blocks:
            for resnet in up_block.resnets:
                parts.append(_Part(partial(self._resolve, resnet), (resnet,), scale, 1, resnet.conv2.out_channels))
            for upsampler in up_block.upsamplers or ():
                run = partial(self._upsample, upsampler)
                parts.append(_Part(run, (upsampler,), scale, 2, upsampler.out_channels))
                scale *= 2
        last = parts.pop()
        leave = partial(self._leave, last.run)
        return [*parts, _Part(leave, (*last.modules, decoder.conv_out), last.scale, last.grows, last.channels)]

    def _enter(self, resnet: nn.Module, x_RCHW: Tensor) -> Tensor:
        if self._quant is not None:
            x_RCHW = self._quant(x_RCHW)
        return self._resolve(resnet, self._decoder.conv_in(x_RCHW))

    def _attend_and_resolve(self, attention: nn.Module | None, resnet: nn.Module, x_RCHW: Tensor) -> Tensor:
        return self._resolve(resnet, x_RCHW if attention is None else attention(x_RCHW))

    def _leave(self, run: Callable[[Tensor], Tensor], x_RCHW: Tensor) -> Tensor:
        decoder = self._decoder
        return decoder.conv_out(decoder.conv_act(decoder.conv_norm_out(run(x_RCHW))))  # type: ignore[no-any-return]


def _run(run: Callable[[Tensor], Tensor], carry: Carry) -> None:
    carry.tensors["x"] = run(carry.tensors["x"])


def _resolve(resnet: nn.Module, x_RCHW: Tensor) -> Tensor:
    return resnet(x_RCHW, None)  # type: ignore[no-any-return]


def _upsample(upsampler: nn.Module, x_RCHW: Tensor) -> Tensor:
    return upsampler(x_RCHW)  # type: ignore[no-any-return]
