"""The decode stage over diffusers' AutoencoderKLWan: chunk by latent frame, and each chunk cut at its modules.

The decoder is causal in time: every convolution reads the last two frames that it saw. diffusers keeps them on the
model; here they are tensors of the carry, `cache.<i>`, and every module gets its own as arguments. Only the
decoder's modules are kept.

Shape suffixes: R rows, C channels, T frames of the chunk, H and W of the module at hand.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from hemiola.core.errors import UnsupportedModel
from hemiola.core.step import Work

from .stage import CONV_UNIT, Block, Carry, Clean

_KEPT_FRAMES = 2
_FIRST_OF_UPSAMPLER = "Rep"  # diffusers' mark: the upsampler has seen a frame, and doubled nothing yet


@dataclass(frozen=True, slots=True)
class _Caches:
    """Caches of one part: `channels[i]` of what cache `first + i` keeps."""

    first: int
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """One module of the decoder, or an end of it.

    Fields:
        run: takes x, a list of its caches, and the index of the latent frame; replaces the caches.
        scale, frames: of its input against the latents' sides and against one latent frame (but for the first one).
        grows, doubles: how much larger and longer its output is.
        channels: of its output.
    """

    run: Callable[[Tensor, list[Any], int], Tensor]
    modules: tuple[nn.Module, ...]
    caches: _Caches
    scale: int
    frames: int
    grows: int
    doubles: int
    channels: int

    def work(self, latent_pixels: int, chunk: int) -> Work:
        weights = sum(p.numel() for m in self.modules for p in m.parameters() if p.dim() > 1)
        positions = latent_pixels * (self.scale * self.grows) ** 2 * self.frames_out(chunk)
        return Work(rows=1, blocks=1, pixels=-(-weights * positions // CONV_UNIT))

    def frames_out(self, chunk: int) -> int:
        return self.frames * self.doubles if chunk else 1


class DecodeWan:
    """Rows of one batch have equal sizes and lengths."""

    name = "decode"

    def __init__(self, vae: Any) -> None:
        config = vae.config
        for option, allowed in (("is_residual", False), ("patch_size", None)):
            if config.get(option, allowed) != allowed:
                raise UnsupportedModel(f"AutoencoderKLWan: '{option}' is set: only Wan 2.1's is supported.")
        self._decoder = vae.decoder
        self._quant: nn.Module = vae.post_quant_conv
        self._dtype: torch.dtype = vae.dtype
        weight = vae.post_quant_conv.weight
        shape = (config.z_dim, 1, 1, 1)
        self._mean = torch.tensor(config.latents_mean).view(shape).to(weight)
        self._inverse_std = 1.0 / torch.tensor(config.latents_std).view(shape).to(weight)
        self._parts = self._cut(vae.decoder)
        self._pixel_channels: int = config.out_channels
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)

    def batch_key(self, shape: tuple[int, ...]) -> Hashable:
        return shape

    def carried(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        channels, num_chunks, height, width = shape
        pixels = height * width
        last = self._parts[-1]
        grown = pixels * (last.scale * last.grows) ** 2
        sizes = {
            "x": max(p.channels * p.frames_out(1) * pixels * (p.scale * p.grows) ** 2 for p in self._parts),
            "latents": channels * num_chunks * pixels,
            "frames": self._pixel_channels * self._num_frames(num_chunks) * grown,
        }
        for part in self._parts:
            for i, kept in enumerate(part.caches.channels, part.caches.first):
                sizes[f"cache.{i}"] = kept * _KEPT_FRAMES * pixels * (part.scale * part.grows) ** 2
        return {name: size * self._dtype.itemsize for name, size in sizes.items()}

    def open(self, rows: Sequence[Clean]) -> Carry:
        latents = torch.stack([row.latents for row in rows]).to(self._dtype)
        latents = self._quant(latents / self._inverse_std + self._mean)
        num_rows, _, num_chunks, height, width = latents.shape
        last = self._parts[-1]
        grown = last.scale * last.grows
        size = (num_rows, self._pixel_channels, self._num_frames(num_chunks), height * grown, width * grown)
        return Carry({"latents": latents, "frames": latents.new_empty(size)})

    def close(self, carry: Carry, rows: Sequence[Clean]) -> Sequence[Tensor]:
        frames = (carry.tensors["frames"].float().clamp(-1, 1) * 0.5 + 0.5).clamp(0, 1)
        return frames.permute(0, 2, 3, 4, 1).unbind()

    # -- blocks

    def _make_blocks(self, shape: tuple[int, ...]) -> Sequence[Block]:
        pixels = shape[-2] * shape[-1]
        return tuple(
            Block(partial(self._run, part, chunk), part.work(pixels, chunk))
            for chunk in range(shape[1])
            for part in self._parts
        )

    def _run(self, part: _Part, chunk: int, carry: Carry) -> None:
        tensors = carry.tensors
        x = tensors["latents"][:, :, chunk : chunk + 1] if part is self._parts[0] else tensors["x"]
        names = [f"cache.{part.caches.first + i}" for i in range(len(part.caches.channels))]
        caches: list[Any] = [tensors.get(name) for name in names]
        x = part.run(x, caches, chunk)
        tensors.update({name: cache for name, cache in zip(names, caches, strict=True) if isinstance(cache, Tensor)})
        if part is self._parts[-1]:
            start = self._num_frames(chunk)
            tensors["frames"][:, :, start : start + x.shape[2]] = x
            del tensors["x"]
        else:
            tensors["x"] = x.contiguous()

    def _num_frames(self, num_chunks: int) -> int:
        """Frames that the first latent frames decode to: one for the first, and as many as it grows for the others."""
        last = self._parts[-1]
        return 0 if num_chunks == 0 else 1 + (num_chunks - 1) * last.frames_out(1)

    def _cut(self, decoder: Any) -> Sequence[_Part]:
        cutter = _Cutter(decoder.conv_in)
        for attention, resnet in zip([None, *decoder.mid_block.attentions], decoder.mid_block.resnets, strict=True):
            cutter.add_resnet(resnet, attention)
        for up_block in decoder.up_blocks:
            for resnet in up_block.resnets:
                cutter.add_resnet(resnet)
            for upsampler in up_block.upsamplers or ():
                cutter.add_upsampler(upsampler)
        cutter.add_end(decoder)
        return tuple(cutter.parts)


class _Cutter:
    """Walks through a decoder's modules in order and keeps count of sizes and caches."""

    def __init__(self, conv_in: Any) -> None:
        self.parts: list[_Part] = []
        self._num_caches = 0
        self._scale = 1
        self._frames = 1
        self._channels: int = conv_in.out_channels
        self._add(partial(_convolve, conv_in), (conv_in,), (conv_in.in_channels,))

    def add_resnet(self, resnet: Any, attention: Any = None) -> None:
        kept = (resnet.conv1.in_channels, resnet.conv2.in_channels)
        self._channels = resnet.conv2.out_channels
        modules = (resnet,) if attention is None else (attention, resnet)
        self._add(partial(_resolve, attention, resnet), modules, kept)

    def add_upsampler(self, upsampler: Any) -> None:
        doubles = upsampler.mode == "upsample3d"
        kept = (upsampler.dim,) if doubles else ()
        self._channels = upsampler.resample[1].out_channels
        self._add(partial(_upsample, upsampler), (upsampler,), kept, grows=2, doubles=2 if doubles else 1)

    def add_end(self, decoder: Any) -> None:
        conv_out = decoder.conv_out
        self._channels = conv_out.out_channels
        self._add(partial(_end, decoder), (conv_out,), (conv_out.in_channels,))

    def _add(
        self,
        run: Callable[[Tensor, list[Any], int], Tensor],
        modules: tuple[nn.Module, ...],
        kept: tuple[int, ...],
        grows: int = 1,
        doubles: int = 1,
    ) -> None:
        caches = _Caches(self._num_caches, kept)
        part = _Part(run, modules, caches, self._scale, self._frames, grows, doubles, self._channels)
        self.parts.append(part)
        self._num_caches += len(kept)
        self._scale *= grows
        self._frames *= doubles


def _convolve(convolution: Any, x_RCTHW: Tensor, caches: list[Any], chunk: int) -> Tensor:
    """A causal convolution that remembers the last frames of its input."""
    kept = x_RCTHW[:, :, -_KEPT_FRAMES:]
    if kept.shape[2] < _KEPT_FRAMES and caches[0] is not None:
        kept = torch.cat([caches[0][:, :, -1:], kept], dim=2)
    output: Tensor = convolution(x_RCTHW, caches[0])
    caches[0] = kept.clone()
    return output


def _resolve(attention: Any, resnet: Any, x_RCTHW: Tensor, caches: list[Any], chunk: int) -> Tensor:
    if attention is not None:
        x_RCTHW = attention(x_RCTHW)
    return resnet(x_RCTHW, feat_cache=caches, feat_idx=[0])  # type: ignore[no-any-return]


def _upsample(upsampler: Any, x_RCTHW: Tensor, caches: list[Any], chunk: int) -> Tensor:
    if caches and chunk == 1:
        caches[0] = _FIRST_OF_UPSAMPLER
    return upsampler(x_RCTHW, feat_cache=caches, feat_idx=[0])  # type: ignore[no-any-return]


def _end(decoder: Any, x_RCTHW: Tensor, caches: list[Any], chunk: int) -> Tensor:
    return _convolve(decoder.conv_out, decoder.nonlinearity(decoder.norm_out(x_RCTHW)), caches, chunk)
