"""AutoencoderKLWan over a whole clip at once: the same numbers as diffusers' chunked encode and decode, for training.

diffusers walks a clip in chunks (1 + 4 + 4 ... frames) and hands the last frames of every causal convolution from chunk
to chunk. Training needs neither the memory saving nor its thousands of launches. Here all frames go through each layer
together: a 3x3x3 causal convolution is one 2-D convolution over three stacked frames (the present and two past ones),
and the two temporal resamplers treat frame 0 apart, as the chunked walk does. `tests/samples/test_video_sequence.py`
compares both. This file knows the modules of diffusers, not the data, the loss or the schedule.

Shapes: a clip is a pair (x_NCHW, T) with N = B * T frames, clip-major; channels-last memory keeps the stacking cheap.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders.autoencoder_kl_wan import (
    WanAttentionBlock,
    WanCausalConv3d,
    WanMidBlock,
    WanResample,
    WanResidualBlock,
    WanRMS_norm,
)
from torch import Tensor, nn

NormSilu = Callable[[Tensor, Tensor], Tensor]


def norm_silu(x_NCHW: Tensor, gamma: Tensor) -> Tensor:
    """SiLU(WanRMS_norm(x)); `gamma` already carries the factor sqrt(C)."""
    norm = x_NCHW.float().square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
    return F.silu((x_NCHW / norm).to(x_NCHW.dtype) * gamma)


def split_frames(x_NCHW: Tensor, frames: int) -> Tensor:
    """[B * T, C, H, W] in channels-last memory -> [B, T, H, W, C], contiguous without a copy."""
    result: Tensor = x_NCHW.permute(0, 2, 3, 1).unflatten(0, (-1, frames))
    return result


def join_frames(x_BTHWC: Tensor) -> Tensor:
    """The way back from `split_frames`; a contiguous input becomes channels-last memory."""
    return x_BTHWC.flatten(0, 1).permute(0, 3, 1, 2)


def stack_past(x_BTHWC: Tensor, stride: int = 1, pad: bool = True) -> Tensor:
    """-> [B * T', 3C, H, W]: each frame behind its two predecessors (zeros before the first when `pad`).

    Concatenating in the last dimension keeps channels-last memory; torch.cat would not do so for [B, T, C, H, W].
    """
    x = F.pad(x_BTHWC, (0, 0, 0, 0, 0, 0, 2, 0)) if pad else x_BTHWC
    span = (x.shape[1] - 3) // stride * stride + 1
    return join_frames(torch.cat([x[:, tap : tap + span : stride] for tap in range(3)], -1))


def stacked_weight(weight_OCTHW: Tensor) -> Tensor:
    """The 3-D kernel as a 2-D kernel over the channels of `stack_past`."""
    return weight_OCTHW.permute(0, 2, 1, 3, 4).flatten(1, 2)


def double_pixels(x_NCHW: Tensor) -> Tensor:
    """Nearest-neighbour upsampling by two, in the tensor's own type and in channels-last memory."""
    n, c, h, w = x_NCHW.shape
    x = x_NCHW.permute(0, 2, 3, 1)[:, :, None, :, None].expand(n, h, 2, w, 2, c)
    return x.reshape(n, 2 * h, 2 * w, c).permute(0, 3, 1, 2)


class SequenceVae(nn.Module):
    """Encoder and decoder of `vae` over whole clips. `activation` may be a compiled `norm_silu`."""

    def __init__(self, vae: AutoencoderKLWan, activation: NormSilu = norm_silu) -> None:
        super().__init__()
        self.vae = vae
        self.activation = activation

    def forward(self, clip_BTCHW: Tensor, noise: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Pixels in [-1, 1] -> (pixels [B, T, 3, H, W], moments [B, t, 2z, h, w]); `noise` maps moments to z."""
        moments = self.encode(clip_BTCHW)
        return self.decode(noise(moments)), moments

    def encode(self, clip_BTCHW: Tensor) -> Tensor:
        """[B, T, 3, H, W] -> moments (mean, log variance) [B, 1 + (T - 1) / 4, 2z, H / 8, W / 8]."""
        encoder, frames = self.vae.encoder, clip_BTCHW.shape[1]
        x = clip_BTCHW.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        x = self._conv(encoder.conv_in, x, frames)
        for layer in encoder.down_blocks:
            x, frames = self._layer(layer, x, frames)
        x, frames = self._layer(encoder.mid_block, x, frames)
        x = self._conv(encoder.conv_out, self._norm(encoder.norm_out, x), frames)
        result: Tensor = self._conv(self.vae.quant_conv, x, frames).unflatten(0, (-1, frames))
        return result

    def decode(self, z_BTCHW: Tensor) -> Tensor:
        """[B, t, z, h, w] -> pixels [B, 4 (t - 1) + 1, 3, 8h, 8w], not clamped."""
        decoder, frames = self.vae.decoder, z_BTCHW.shape[1]
        x = z_BTCHW.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        x = self._conv(decoder.conv_in, self._conv(self.vae.post_quant_conv, x, frames), frames)
        x, frames = self._layer(decoder.mid_block, x, frames)
        for block in decoder.up_blocks:
            for layer in [*block.resnets, *(block.upsamplers or [])]:
                x, frames = self._layer(layer, x, frames)
        x = self._conv(decoder.conv_out, self._norm(decoder.norm_out, x), frames)
        result: Tensor = x.unflatten(0, (-1, frames))
        return result

    def _layer(self, layer: nn.Module, x: Tensor, frames: int) -> tuple[Tensor, int]:
        if isinstance(layer, WanResidualBlock):
            return self._residual(layer, x, frames), frames
        if isinstance(layer, WanMidBlock):
            x = self._residual(layer.resnets[0], x, frames)
            for attention, resnet in zip(layer.attentions, layer.resnets[1:], strict=True):
                x = self._residual(resnet, self._attention(attention, x), frames)
            return x, frames
        assert isinstance(layer, WanResample), f"unknown VAE layer {type(layer).__name__}"
        return self._resample(layer, x, frames)

    def _norm(self, norm: WanRMS_norm, x: Tensor) -> Tensor:
        return self.activation(x, norm.gamma.reshape(1, -1, 1, 1) * norm.scale)

    def _conv(self, conv: WanCausalConv3d, x: Tensor, frames: int) -> Tensor:
        weight, padding = conv.weight, (conv._padding[2], conv._padding[0])
        if weight.shape[2] == 1:
            return F.conv2d(x, weight[:, :, 0], conv.bias, padding=padding)
        if frames == 1:
            return F.conv2d(x, weight[:, :, -1], conv.bias, padding=padding)
        return F.conv2d(stack_past(split_frames(x, frames)), stacked_weight(weight), conv.bias, padding=padding)

    def _residual(self, block: WanResidualBlock, x: Tensor, frames: int) -> Tensor:
        shortcut = x if isinstance(block.conv_shortcut, nn.Identity) else self._conv(block.conv_shortcut, x, frames)
        x = self._conv(block.conv1, self._norm(block.norm1, x), frames)
        return shortcut + self._conv(block.conv2, self._norm(block.norm2, x), frames)

    def _attention(self, block: WanAttentionBlock, x: Tensor) -> Tensor:
        """Single-head attention over the pixels of each frame."""
        qkv = block.to_qkv(block.norm(x)).flatten(2).transpose(1, 2)
        q, k, v = (part.unsqueeze(1) for part in qkv.chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v).squeeze(1).transpose(1, 2).unflatten(2, x.shape[2:])
        projected: Tensor = block.proj(mixed.contiguous(memory_format=torch.channels_last))
        return projected + x

    def _resample(self, layer: WanResample, x: Tensor, frames: int) -> tuple[Tensor, int]:
        if layer.mode == "upsample3d" and frames > 1:
            x, frames = self._double_frames(layer.time_conv, x, frames)
        is_growing = layer.mode.startswith("upsample")
        x = layer.resample[1](double_pixels(x) if is_growing else layer.resample[0](x))
        if layer.mode == "downsample3d" and frames > 1:
            x, frames = self._halve_frames(layer.time_conv, x, frames)
        return x, frames

    def _double_frames(self, conv: WanCausalConv3d, x: Tensor, frames: int) -> tuple[Tensor, int]:
        """Frame 0 passes; the causal convolution starts afresh at frame 1 and gives two frames for each."""
        first, rest = split_frames(x, frames).split([1, frames - 1], 1)
        pairs = split_frames(F.conv2d(stack_past(rest), stacked_weight(conv.weight), conv.bias), frames - 1)
        pairs = torch.stack(pairs.chunk(2, -1), 2).flatten(1, 2)  # B, T, 2, H, W, C -> B, 2T, H, W, C
        return join_frames(torch.cat([first, pairs], 1)), 2 * frames - 1

    def _halve_frames(self, conv: WanCausalConv3d, x: Tensor, frames: int) -> tuple[Tensor, int]:
        """Frame 0 passes; then frames (0, 1, 2), (2, 3, 4), ... give one each."""
        clip, half = split_frames(x, frames), (frames - 1) // 2
        rest = F.conv2d(stack_past(clip, stride=2, pad=False), stacked_weight(conv.weight), conv.bias)
        return join_frames(torch.cat([clip[:, :1], split_frames(rest, half)], 1)), half + 1


@torch.no_grad()
def inflate_from_images(vae: AutoencoderKLWan) -> None:
    """Initialise `vae` so that a clip is a row of independent pictures (in place).

    Past taps of every causal convolution become zero; temporal downsampling keeps the later frame, temporal upsampling
    repeats a frame. An image autoencoder trained on single frames is then a valid start for clips.
    """
    for module in vae.modules():
        if isinstance(module, WanCausalConv3d) and module.weight.shape[2] == 3:
            module.weight[:, :, :2] = 0.0
        if isinstance(module, WanResample) and module.mode in ("upsample3d", "downsample3d"):
            weight = module.time_conv.weight
            repeats = weight.shape[0] // weight.shape[1]
            weight.zero_()
            weight[:, :, -1, 0, 0] = torch.eye(weight.shape[1]).repeat(repeats, 1)
            module.time_conv.bias.zero_()
