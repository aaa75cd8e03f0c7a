"""Triton kernel of modulated norms: a program takes one token."""

import triton.language as tl

from ..triton_jit import kernel


@kernel("tokens_per_row")
def modulated_norm(
    x: tl.tensor,
    out: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    scale: tl.tensor,
    shift: tl.tensor,
    rows: tl.tensor,
    tokens_per_row: tl.tensor,
    size: tl.tensor,
    scale_stride: tl.tensor,
    shift_stride: tl.tensor,
    eps: tl.tensor,
    IS_CENTRED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Layer norm where centred, else RMS norm. What is None is left out."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < size
    value = tl.load(x + token * size + column, mask, other=0.0).to(tl.float32)
    if IS_CENTRED:
        value = tl.where(mask, value - tl.sum(value, 0) / size, 0.0)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / size + eps)
    if weight is not None:
        value = value * tl.load(weight + column, mask, other=0.0).to(tl.float32)
    if bias is not None:
        value = value + tl.load(bias + column, mask, other=0.0).to(tl.float32)
    if scale is not None:
        row = token // tokens_per_row
        if rows is not None:
            row = tl.load(rows + row)
        value = value * (1 + tl.load(scale + row * scale_stride + column, mask, other=0.0).to(tl.float32))
        if shift is not None:
            value = value + tl.load(shift + row * shift_stride + column, mask, other=0.0).to(tl.float32)
    tl.store(out + token * size + column, value.to(out.dtype.element_ty), mask)
