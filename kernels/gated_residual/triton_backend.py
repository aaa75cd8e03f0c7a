"""Gated residuals in one Triton kernel, which also looks up each token's gate."""

import torch
from torch import Tensor

from .. import triton_target
from ..modulation import Dealt
from ..registry import Target


class TritonGatedResidual:
    """See `GatedResidual`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    @staticmethod
    def add(x: Tensor, update: Tensor, gate_RD: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        return _run(x, update, None, 0.0, gate_RD, rows, is_normed=False)

    @staticmethod
    def add_normed(
        x: Tensor,
        update: Tensor,
        weight: Tensor | None,
        eps: float,
        gate_RD: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        return _run(x, update, weight, eps, gate_RD, rows, is_normed=True)


def _run(
    x: Tensor,
    update: Tensor,
    weight: Tensor | None,
    eps: float,
    gate_RD: Tensor | None,
    rows: Tensor | None,
    *,
    is_normed: bool,
) -> Tensor:
    x, update = x.contiguous(), update.contiguous()
    assert x.shape == update.shape, f"a stream {tuple(x.shape)} cannot take an update {tuple(update.shape)}"
    out = torch.empty_like(x)
    size = x.shape[-1]
    num_tokens = x.numel() // size
    if num_tokens == 0:
        return out
    gate = Dealt.of(gate_RD, rows, num_tokens)
    block = triton_target.power_of_two(size)
    triton_target.kernels_of(__package__).gated_residual[(num_tokens,)](
        x,
        update,
        out,
        gate_RD,
        weight,
        rows,
        gate.tokens_per_row,
        size,
        gate.stride,
        eps,
        IS_NORMED=is_normed,
        BLOCK=block,
        num_warps=triton_target.num_warps(block),
    )
    return out
