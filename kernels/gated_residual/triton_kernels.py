"""Triton kernel of gated residuals: a program takes one token."""

import triton.language as tl

from ..triton_jit import kernel


@kernel("tokens_per_row")
def gated_residual(
    x: tl.tensor,
    update: tl.tensor,
    out: tl.tensor,
    gate: tl.tensor,
    weight: tl.tensor,
    rows: tl.tensor,
    tokens_per_row: tl.tensor,
    size: tl.tensor,
    gate_stride: tl.tensor,
    eps: tl.tensor,
    IS_NORMED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """What is None is left out."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < size
    value = tl.load(update + token * size + column, mask, other=0.0).to(tl.float32)
    if IS_NORMED:
        value = value * tl.rsqrt(tl.sum(value * value, 0) / size + eps)
        if weight is not None:
            value = value * tl.load(weight + column, mask, other=0.0).to(tl.float32)
    if gate is not None:
        row = token // tokens_per_row
        if rows is not None:
            row = tl.load(rows + row)
        value = value * tl.load(gate + row * gate_stride + column, mask, other=0.0).to(tl.float32)
    value = value + tl.load(x + token * size + column, mask, other=0.0).to(tl.float32)
    tl.store(out + token * size + column, value.to(out.dtype.element_ty), mask)
