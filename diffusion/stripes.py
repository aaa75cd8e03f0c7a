"""Convolutions over a large map one stripe of rows after another: the same sums, with less memory besides.

A library copies what a convolution in two-byte types reads and writes into another layout, whole: at 2048x2048 that is
as much as the maps themselves. A stripe reads one row more on either side than it writes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, silu

from .edge.footprint import STRIPE_PIXELS

__all__ = ["STRIPE_PIXELS", "convolved", "resolved", "upsampled"]


def convolved(conv: Any, x_RCHW: Tensor, scale: int = 1) -> Tensor:
    """The convolution (odd kernel, its sides kept by zeros) of x or, with `scale`, of x with every pixel repeated."""
    num_rows, _, height, width = x_RCHW.shape
    tall = height * scale
    lines = max(STRIPE_PIXELS // (num_rows * width * scale), 1)
    if lines >= tall:
        return conv(_repeated(x_RCHW, scale))  # type: ignore[no-any-return]
    y = x_RCHW.new_empty(num_rows, conv.out_channels, tall, width * scale)
    reach = conv.kernel_size[0] // 2
    for start in range(0, tall, lines):
        stop = min(start + lines, tall)
        first, last = max(start - reach, 0) // scale, min(-(-(stop + reach) // scale), height)
        part = conv(_repeated(x_RCHW[:, :, first:last], scale))
        y[:, :, start:stop].copy_(part[:, :, start - first * scale : stop - first * scale])
        del part
    return y


def resolved(resnet: Any, x_RCHW: Tensor) -> Tensor:
    """The forward of diffusers' ResnetBlock2D without time, holding no map longer than it is needed."""
    y = _active(resnet, resnet.norm1(x_RCHW))
    y = convolved(resnet.conv1, y)
    y = _active(resnet, resnet.norm2(y))
    y = convolved(resnet.conv2, y)
    y.add_(x_RCHW if resnet.conv_shortcut is None else convolved(resnet.conv_shortcut, x_RCHW))
    return y if resnet.output_scale_factor == 1.0 else y.div_(resnet.output_scale_factor)


def upsampled(upsampler: Any, x_RCHW: Tensor) -> Tensor:
    """The forward of diffusers' Upsample2D by a convolution."""
    return convolved(upsampler.conv, x_RCHW, 2)


def _active(resnet: Any, x: Tensor) -> Tensor:
    return silu(x, inplace=True) if isinstance(resnet.nonlinearity, torch.nn.SiLU) else resnet.nonlinearity(x)


def _repeated(x_RCHW: Tensor, scale: int) -> Tensor:
    return x_RCHW if scale == 1 else interpolate(x_RCHW, scale_factor=float(scale), mode="nearest")
