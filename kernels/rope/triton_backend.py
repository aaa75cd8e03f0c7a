"""Norm of heads and rotary embedding in one Triton kernel a layer; angles stay in float32."""

import torch
from torch import Tensor

from .. import triton_target
from ..registry import Target

_TILE = 1024  # pairs of the heads that one program takes together

Angles = tuple[Tensor, Tensor]  # cos, sin: float32 [T, F]
HeadNorm = tuple[Tensor, float]  # weight [H, D], eps


class TritonRope:
    """See `Rope`."""

    def __init__(self, inverse_frequencies: Tensor, scale: float = 1.0) -> None:
        self._frequencies_F = inverse_frequencies.float()
        self._scale = scale
        self._num_pairs = len(inverse_frequencies)
        self._pairs = triton_target.power_of_two(self._num_pairs)
        self._kernel = triton_target.kernels_of(__package__).rotate

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    def at(self, positions_T: Tensor, dtype: torch.dtype) -> Angles:
        angles_TF = torch.outer(positions_T.float(), self._frequencies_F)
        cos_TF, sin_TF = angles_TF.cos(), angles_TF.sin_()
        return (cos_TF, sin_TF) if self._scale == 1.0 else (cos_TF.mul_(self._scale), sin_TF.mul_(self._scale))

    @staticmethod
    def head_norm(weight_HD: Tensor, eps: float) -> HeadNorm:
        return weight_HD.detach().contiguous(), eps

    def rotate(self, x_THD: Tensor, angles: Angles, norm: HeadNorm | None = None) -> None:
        weight, eps = (None, 0.0) if norm is None else norm
        cos_TF, sin_TF = angles
        num_tokens, num_heads, size = x_THD.shape
        assert size == 2 * self._num_pairs and x_THD.stride(2) == 1, f"contiguous heads of {2 * self._num_pairs}"
        assert weight is None or weight.shape == (num_heads, size), "a weight for each head"
        if num_tokens == 0:
            return
        heads = min(triton_target.power_of_two(num_heads), max(1, _TILE // self._pairs))
        self._kernel[(num_tokens, -(-num_heads // heads))](
            x_THD,
            weight,
            cos_TF,
            sin_TF,
            num_heads,
            self._num_pairs,
            x_THD.stride(0),
            x_THD.stride(1),
            eps,
            HEADS=heads,
            PAIRS=self._pairs,
            num_warps=triton_target.num_warps(2 * heads * self._pairs),
        )
