"""The decode stage over the weights of diffusers' AutoencoderKLWan: chunk by latent frame, each chunk cut at modules.

The decoder is causal in time: a convolution sees the last two frames of its input beside the present ones. diffusers
keeps them on the model; here they are tensors of the carry, `cache.<i>`. Frames are a batch dimension throughout, and
a convolution over three frames is one in two dimensions over their stacked channels: the same sums, several times as
fast as `conv3d` on a CPU.

A CPU stacks all frames of a chunk. Elsewhere, where maps are large and memory is what counts, the frames that were seen
lie one after another in one buffer, so that three neighbours are stacked as they lie (see `vae_wan_lean`); and a chunk
writes what it remembers over what the one before it did, so that no group of blocks keeps it a second time.

Shape suffixes: R rows, T frames of the chunk, C channels, H and W of the module at hand.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, silu

from hemiola.core.errors import UnsupportedModel
from hemiola.core.step import Work

from .stage import Block, Carry, Clean, conv_work
from .vae_wan_lean import PAST as _PAST
from .vae_wan_lean import grown, seen_frames, written

Caches = list[Tensor | None]
Run = Callable[[Tensor, Caches, int], Tensor]
"""Takes x, the caches (which it replaces) and the index of the latent frame."""


class _Conv:
    """A convolution over one frame, or a causal one over three."""

    def __init__(self, module: Any) -> None:
        weight: Tensor = module.weight
        self.in_channels: int = module.in_channels
        self.out_channels: int = module.out_channels
        self._num_frames = weight.shape[2] if weight.dim() == 5 else 1
        if weight.dim() == 5:
            weight = weight.transpose(1, 2).flatten(1, 2)
        self._weight = weight.contiguous()
        self._bias: Tensor = module.bias
        self.macs = weight.numel()  # multiply-adds per pixel that is written
        self.num_touched = weight.shape[0] + weight.shape[1]  # elements read and written for it

    def __call__(self, x_RTCHW: Tensor) -> Tensor:
        """Over each frame alone."""
        y = conv2d(x_RTCHW.flatten(0, 1), self._weight, self._bias, padding=self._weight.shape[-1] // 2)
        return y.view(*x_RTCHW.shape[:2], *y.shape[1:])

    def over_time(self, x_RTCHW: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Over each frame and the two before it; before the first there is nothing. Also what to remember."""
        num_frames = x_RTCHW.shape[1]
        if past is None:
            past = torch.zeros_like(x_RTCHW[:, :1]).expand(-1, _PAST, -1, -1, -1)
        seen = torch.cat([past, x_RTCHW], dim=1)
        stacked = torch.cat([seen[:, i : i + num_frames] for i in range(_PAST + 1)], dim=2)
        return self(stacked), seen[:, -_PAST:].clone()  # a view would keep all of `seen`

    def over_seen(self, seen_RSCHW: Tensor) -> Tensor:
        """Over each frame of `seen_frames` and the two before it: a view, not a copy, is what is stacked."""
        num_rows, num_frames = seen_RSCHW.shape[0], seen_RSCHW.shape[1] - _PAST
        windows = (
            seen_RSCHW[row, i : i + _PAST + 1].flatten(0, 1) for row in range(num_rows) for i in range(num_frames)
        )
        return written(map(self._frame, windows), num_rows, num_frames)

    def over_grown(self, x_RTCHW: Tensor) -> Tensor:
        """Over each frame alone, of twice the sides."""
        return written(map(self._frame, map(grown, x_RTCHW.flatten(0, 1))), *x_RTCHW.shape[:2])

    def _frame(self, x_CHW: Tensor) -> Tensor:
        return conv2d(x_CHW.unsqueeze(0), self._weight, self._bias, padding=self._weight.shape[-1] // 2)[0]


class _Norm:
    """Unit length over channels, times a gain; then SiLU."""

    def __init__(self, module: Any) -> None:
        self._gain: Tensor = (module.scale * module.gamma).flatten().view(-1, 1, 1)

    def __call__(self, x_RTCHW: Tensor) -> Tensor:
        as_float = x_RTCHW.float()
        length = torch.linalg.vector_norm(as_float, dim=2, keepdim=True).clamp_min_(1e-12)
        return silu(torch.div(as_float, length).mul_(self._gain), inplace=True).to(x_RTCHW.dtype)

    def of_frame(self, x_RCHW: Tensor) -> Tensor:
        """The same in float32, with one map of it alive."""
        length = torch.linalg.vector_norm(x_RCHW, dim=1, keepdim=True, dtype=torch.float32).clamp_min_(1e-12)
        return silu(torch.div(x_RCHW, length).mul_(self._gain), inplace=True)


class _Resnet:
    """A residual block, behind an attention over each frame where there is one."""

    def __init__(self, module: Any, attention: Any = None) -> None:
        self._attention = attention
        self.attends = attention is not None
        self._norm1, self._norm2 = _Norm(module.norm1), _Norm(module.norm2)
        self._conv1, self._conv2 = _Conv(module.conv1), _Conv(module.conv2)
        has_shortcut = module.conv1.in_channels != module.conv2.out_channels
        self._shortcut = _Conv(module.conv_shortcut) if has_shortcut else None
        self.convs = [conv for conv in (self._conv1, self._conv2, self._shortcut) if conv is not None]
        self.kept = (self._conv1.in_channels, self._conv2.in_channels)
        self.out_channels = self._conv2.out_channels

    def __call__(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        if self._attention is not None:
            x_RTCHW = self._attention(x_RTCHW.transpose(1, 2)).transpose(1, 2)
        y, caches[0] = self._conv1.over_time(self._norm1(x_RTCHW), caches[0])
        y, caches[1] = self._conv2.over_time(self._norm2(y), caches[1])
        return y.add_(x_RTCHW if self._shortcut is None else self._shortcut(x_RTCHW))

    def lean(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        if self._attention is not None:
            x_RTCHW = self._attention(x_RTCHW.transpose(1, 2)).transpose(1, 2)
        seen = seen_frames(x_RTCHW, caches, 0, self._norm1.of_frame)
        y = self._conv1.over_seen(seen)
        del seen
        seen = seen_frames(y, caches, 1, self._norm2.of_frame)
        del y
        y = self._conv2.over_seen(seen)
        del seen
        return y.add_(x_RTCHW if self._shortcut is None else self._shortcut(x_RTCHW))


class _Upsampler:
    """Twice the sides and, with a convolution over time, twice the frames (but for the first one of all)."""

    def __init__(self, module: Any) -> None:
        self._over_time = _Conv(module.time_conv) if module.mode == "upsample3d" else None
        self._conv = _Conv(module.resample[1])
        self.convs = [self._conv]
        self.kept = () if self._over_time is None else (self._over_time.in_channels,)
        self.out_channels = self._conv.out_channels

    def __call__(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        if self._over_time is not None and chunk > 0:  # what was seen of the first frame is not remembered
            doubled, caches[0] = self._over_time.over_time(x_RTCHW, caches[0])
            x_RTCHW = doubled.unflatten(2, (2, -1)).flatten(1, 2)
        large = interpolate(x_RTCHW.flatten(0, 1).float(), scale_factor=2.0, mode="nearest-exact")
        return self._conv(large.to(x_RTCHW.dtype).unflatten(0, x_RTCHW.shape[:2]))

    def lean(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        if self._over_time is not None and chunk > 0:
            doubled = self._over_time.over_seen(seen_frames(x_RTCHW, caches, 0))
            x_RTCHW = doubled.unflatten(2, (2, -1)).flatten(1, 2)
        return self._conv.over_grown(x_RTCHW)


class _Start:
    def __init__(self, decoder: Any) -> None:
        self._conv = _Conv(decoder.conv_in)
        self.convs = [self._conv]
        self.kept = (self._conv.in_channels,)
        self.out_channels = self._conv.out_channels

    def __call__(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        y, caches[0] = self._conv.over_time(x_RTCHW, caches[0])
        return y

    def lean(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        return self._conv.over_seen(seen_frames(x_RTCHW, caches, 0))


class _End(_Start):
    def __init__(self, decoder: Any) -> None:
        self._norm = _Norm(decoder.norm_out)
        self._conv = _Conv(decoder.conv_out)
        self.convs = [self._conv]
        self.kept = (self._conv.in_channels,)
        self.out_channels = self._conv.out_channels

    def __call__(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        return super().__call__(self._norm(x_RTCHW), caches, chunk)

    def lean(self, x_RTCHW: Tensor, caches: Caches, chunk: int) -> Tensor:
        return self._conv.over_seen(seen_frames(x_RTCHW, caches, 0, self._norm.of_frame))


Module = _Start | _Resnet | _Upsampler


@dataclass(frozen=True, slots=True)
class _Part:
    """One module of the decoder and where it stands.

    Fields:
        module: what runs.
        first_cache: index of its first cache.
        scale: sides of what it keeps and reads, in those of the latents.
        scale_out, frames_out: sides of its output; its frames per latent frame, but for the first one.
    """

    module: Module
    first_cache: int
    scale: int
    scale_out: int
    frames_out: int

    def size(self, latent_pixels: int) -> int:
        """Elements of its output per row, in all chunks but the first."""
        return self.module.out_channels * self.frames_out * latent_pixels * self.scale_out**2

    def work(self, latent_pixels: int, chunk: int) -> Work:
        positions = latent_pixels * self.scale_out**2 * (self.frames_out if chunk else 1)
        macs = sum(conv.macs for conv in self.module.convs)
        work = conv_work(positions * macs, positions * sum(conv.num_touched for conv in self.module.convs))
        attends = isinstance(self.module, _Resnet) and self.module.attends  # each position to all of its frame
        return work._replace(attended_pairs=positions**2) if attends else work


class DecodeWan:
    """Rows of one batch have equal sizes and lengths.

    Args:
        is_lean: whether to spare memory (see the module's docstring); None: everywhere but on a CPU.
    """

    name = "decode"

    def __init__(self, vae: Any, *, is_lean: bool | None = None) -> None:
        config = vae.config
        for option, allowed in (("is_residual", False), ("patch_size", None)):
            if config.get(option, allowed) != allowed:
                raise UnsupportedModel(f"AutoencoderKLWan: '{option}' is set: only Wan 2.1's is supported.")
        self._quant = _Conv(vae.post_quant_conv)
        self._dtype: torch.dtype = vae.dtype
        weight = vae.post_quant_conv.weight
        self._is_lean = weight.device.type != "cpu" if is_lean is None else is_lean
        shape = (config.z_dim, 1, 1)
        self._mean = torch.tensor(config.latents_mean).view(shape).to(weight)
        self._inverse_std = 1.0 / torch.tensor(config.latents_std).view(shape).to(weight)
        self._parts = _parts(vae.decoder)
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)

    def batch_key(self, shape: tuple[int, ...]) -> Hashable:
        return shape

    def carried(self, shape: tuple[int, ...]) -> Mapping[str, int]:
        channels, num_chunks, height, width = shape
        pixels = height * width
        last = self._parts[-1]
        sizes = {
            "x": max(part.size(pixels) for part in self._parts),
            "latents": channels * num_chunks * pixels,
            "frames": self._num_frames(num_chunks) * last.module.out_channels * pixels * last.scale_out**2,
        }
        for part in self._parts:
            for i, kept in enumerate(part.module.kept, part.first_cache):
                sizes[f"cache.{i}"] = _PAST * kept * pixels * part.scale**2
        return {name: size * self._dtype.itemsize for name, size in sizes.items()}

    def open(self, rows: Sequence[Clean]) -> Carry:
        latents = torch.stack([row.latents.transpose(0, 1) for row in rows]).to(self._dtype)
        latents = self._quant(latents / self._inverse_std + self._mean)
        num_rows, num_chunks, _, height, width = latents.shape
        last = self._parts[-1]
        size = (self._num_frames(num_chunks), last.module.out_channels, height * last.scale_out, width * last.scale_out)
        return Carry({"latents": latents, "frames": latents.new_empty(num_rows, *size)}, tuple(latents.shape))

    def close(self, carry: Carry, rows: Sequence[Clean]) -> Sequence[Tensor]:
        frames = carry.tensors["frames"].clamp(-1, 1).float().mul_(0.5).add_(0.5).clamp_(0, 1)
        return frames.permute(0, 1, 3, 4, 2).unbind()

    def _make_blocks(self, shape: tuple[int, ...]) -> Sequence[Block]:
        pixels = shape[-2] * shape[-1]
        return tuple(
            Block(partial(self._run, part, chunk), part.work(pixels, chunk), is_kept=self._is_lean and chunk <= 1)
            for chunk in range(shape[1])
            for part in self._parts
        )

    def _run(self, part: _Part, chunk: int, carry: Carry) -> None:
        """`frames` is written into, by the last part of every chunk; so are the caches where memory is spared, which
        are all there after the second chunk."""
        tensors = carry.tensors
        names = [f"cache.{part.first_cache + i}" for i in range(len(part.module.kept))]
        caches: Caches = [tensors.get(name) for name in names]
        x = tensors["latents"][:, chunk : chunk + 1] if part is self._parts[0] else tensors["x"]
        x = part.module.lean(x, caches, chunk) if self._is_lean else part.module(x, caches, chunk)
        tensors.update({name: cache for name, cache in zip(names, caches, strict=True) if cache is not None})
        if part is self._parts[-1]:
            start = self._num_frames(chunk)
            tensors["frames"][:, start : start + x.shape[1]] = x
            del tensors["x"]
        else:
            tensors["x"] = x

    def _num_frames(self, num_chunks: int) -> int:
        """What the first latent frames decode to: one frame for the first of them, several for the others."""
        return 0 if num_chunks == 0 else 1 + (num_chunks - 1) * self._parts[-1].frames_out


def _parts(decoder: Any) -> Sequence[_Part]:
    modules: list[Module] = [_Start(decoder)]
    attentions = [None, *decoder.mid_block.attentions]
    modules += [_Resnet(*pair) for pair in zip(decoder.mid_block.resnets, attentions, strict=True)]
    for up_block in decoder.up_blocks:
        modules += [_Resnet(resnet) for resnet in up_block.resnets]
        modules += [_Upsampler(upsampler) for upsampler in up_block.upsamplers or ()]
    modules.append(_End(decoder))
    parts: list[_Part] = []
    first_cache, scale, frames = 0, 1, 1
    for module in modules:
        grows = isinstance(module, _Upsampler)
        frames *= 2 if grows and module.kept else 1
        parts.append(_Part(module, first_cache, scale, scale * 2 if grows else scale, frames))
        first_cache += len(module.kept)
        scale = parts[-1].scale_out
    return tuple(parts)
