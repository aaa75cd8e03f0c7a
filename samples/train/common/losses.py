"""The reconstruction loss of the autoencoders of pictures and clips. Pixels are in [-1, 1]; everything is fp32.

L1 on the pixels, on a Laplacian pyramid (the finest two levels count double) and on the differences between frames;
structural similarity over 7x7 windows (Wang et al., 2004); a little squared error against rare large mistakes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PYRAMID_WEIGHTS = (2.0, 2.0, 1.0, 1.0, 1.0)


def pyramid_l1(difference_NCHW: Tensor) -> Tensor:
    """Weighted L1 of the Laplacian pyramid. The pyramid is linear, so one of the difference is enough."""
    total, level = difference_NCHW.new_zeros(()), difference_NCHW
    for weight in PYRAMID_WEIGHTS[:-1]:
        coarse = F.avg_pool2d(level, 2)
        detail = level.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)) - coarse[:, :, :, None, :, None]
        total = total + weight * detail.abs().mean()
        level = coarse
    return total + PYRAMID_WEIGHTS[-1] * level.abs().mean()


def structural_similarity(x_NCHW: Tensor, y_NCHW: Tensor) -> Tensor:
    """Mean SSIM of pictures in [-1, 1] with uniform 7x7 windows."""
    x, y = (x_NCHW + 1) / 2, (y_NCHW + 1) / 2
    mean_x, mean_y, xx, yy, xy = F.avg_pool2d(torch.cat([x, y, x * x, y * y, x * y]), 7, 1).chunk(5)
    var_x, var_y, cov = xx - mean_x**2, yy - mean_y**2, xy - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    return (luminance * (2 * cov + c2) / (var_x + var_y + c2)).mean()


def kl_per_value(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Nats per latent value between the posterior and the unit normal."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()


def reconstruction_loss(got_BTCHW: Tensor, true_BTCHW: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, mean squared error in the scale of [0, 1])."""
    difference = got_BTCHW - true_BTCHW
    squared = difference.square().mean()
    frames = difference.flatten(0, 1)
    loss = frames.abs().mean() + pyramid_l1(frames) + 2 * squared
    loss = loss + 0.15 * (1 - structural_similarity(got_BTCHW.flatten(0, 1), true_BTCHW.flatten(0, 1)))
    if got_BTCHW.shape[1] > 1:
        loss = loss + (difference[:, 1:] - difference[:, :-1]).abs().mean()
    return loss, squared.detach() / 4
