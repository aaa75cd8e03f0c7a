"""Modulated norms in one Triton kernel, which also looks up each token's modulation."""

import torch
from torch import Tensor

from .. import triton_target
from ..modulation import Dealt
from ..registry import Target


class TritonModulatedNorm:
    """See `ModulatedNorm`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    @staticmethod
    def layer_norm(
        x: Tensor,
        eps: float,
        scale_RD: Tensor | None = None,
        shift_RD: Tensor | None = None,
        rows: Tensor | None = None,
        *,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        return _run(x, eps, weight, bias, scale_RD, shift_RD, rows, is_centred=True)

    @staticmethod
    def rms_norm(
        x: Tensor, weight: Tensor | None, eps: float, scale_RD: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        return _run(x, eps, weight, None, scale_RD, None, rows, is_centred=False)


def _run(
    x: Tensor,
    eps: float,
    weight: Tensor | None,
    bias: Tensor | None,
    scale_RD: Tensor | None,
    shift_RD: Tensor | None,
    rows: Tensor | None,
    *,
    is_centred: bool,
) -> Tensor:
    assert shift_RD is None or scale_RD is not None, "a shift needs a scale"
    x = x.contiguous()
    out = torch.empty_like(x)
    size = x.shape[-1]
    num_tokens = x.numel() // size
    if num_tokens == 0:
        return out
    scale, shift = Dealt.of(scale_RD, rows, num_tokens), Dealt.of(shift_RD, rows, num_tokens)
    block = triton_target.power_of_two(size)
    triton_target.kernels_of(__package__).modulated_norm[(num_tokens,)](
        x,
        out,
        weight,
        bias,
        scale_RD,
        shift_RD,
        rows,
        scale.tokens_per_row,
        size,
        scale.stride,
        shift.stride,
        eps,
        IS_CENTRED=is_centred,
        BLOCK=block,
        num_warps=triton_target.num_warps(block),
    )
    return out
