"""Norm and rotation of heads in one Triton kernel, in place."""

import torch
from torch import Tensor

from .. import triton_target
from ..registry import Target


class TritonHeadRope:
    """See `HeadRope`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    @staticmethod
    def rotate(x_BLHE: Tensor, rope_NLF: Tensor | None, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
        num_segments, length, num_heads, size = x_BLHE.shape
        assert x_BLHE.stride(3) == 1, "heads must be contiguous"
        assert weight is None or weight.numel() in (size, num_heads * size), "one weight for a head, or for all"
        if x_BLHE.numel() == 0:
            return x_BLHE
        rope = None if rope_NLF is None else torch.view_as_real(rope_NLF)
        heads, pairs = triton_target.power_of_two(num_heads), triton_target.power_of_two(size) // 2
        triton_target.kernels_of(__package__).norm_and_rotate[(num_segments * length,)](
            x_BLHE,
            rope,
            weight,
            length,
            num_heads,
            size,
            *x_BLHE.stride()[:3],
            *_strides(rope, num_segments, length, size),
            eps,
            IS_JOINT=weight is not None and weight.numel() != size,
            HEADS=heads,
            PAIRS=pairs,
            num_warps=triton_target.num_warps(2 * heads * pairs),
        )
        return x_BLHE


def _strides(rope: Tensor | None, num_segments: int, length: int, size: int) -> tuple[int, int]:
    """From segment to segment and from token to token; positions shared by all segments have no distance."""
    if rope is None:
        return 0, 0
    assert rope.dtype == torch.float32 and rope.stride()[2:] == (2, 1), "complex64 and contiguous pairs"
    assert rope.shape[0] in (1, num_segments) and tuple(rope.shape[1:3]) == (length, size // 2), "see the interface"
    return (0 if rope.shape[0] == 1 else rope.stride(0)), rope.stride(1)
