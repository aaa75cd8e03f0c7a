"""Torch reference of rotary embedding: three small operations a layer.

With x = (a, b) halves: rotated = (a cos - b sin, b cos + a sin) = x cos + swapped(x) (-sin, sin).
Shape suffixes: T tokens, H heads, D head size, F = D / 2 frequencies.
"""

import torch
from torch import Tensor

from ..registry import Target
from ..rms_norm.torch_reference import TorchRmsNorm

Angles = tuple[Tensor, Tensor]  # cos [T, 1, 1, F]; (-sin, sin) [T, 1, 2, F]


class TorchRope:
    """See `Rope`."""

    def __init__(self, inverse_frequencies: Tensor, scale: float = 1.0) -> None:
        self._frequencies_F = inverse_frequencies.float()
        self._scale = scale

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def at(self, positions_T: Tensor, dtype: torch.dtype) -> Angles:
        angles_TF = torch.outer(positions_T.float(), self._frequencies_F)
        cos_TF, sin_TF = angles_TF.cos(), angles_TF.sin_()
        if self._scale != 1.0:
            cos_TF, sin_TF = cos_TF * self._scale, sin_TF * self._scale
        signed_T2F = torch.stack((-sin_TF, sin_TF), 1)
        return cos_TF[:, None, None].to(dtype), signed_T2F[:, None].to(dtype)

    @staticmethod
    def head_norm(weight_HD: Tensor, eps: float) -> TorchRmsNorm:
        return TorchRmsNorm(weight_HD, eps)

    def rotate(self, x_THD: Tensor, angles: Angles, norm: TorchRmsNorm | None = None) -> None:
        if norm is not None:
            norm.in_place(x_THD)
        cos, signed_sin = angles
        num_tokens, num_heads, size = x_THD.shape
        x_TH2F = x_THD.view(num_tokens, num_heads, 2, size // 2)
        swapped_TH2F = x_TH2F.flip(2)
        x_TH2F.mul_(cos).addcmul_(swapped_TH2F, signed_sin)
