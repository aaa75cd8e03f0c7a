"""Triton kernel of RMS norm: one pass over tiles of a few whole rows."""

from typing import Any

import triton.language as tl

from ..triton_jit import kernel


@kernel("num_rows")
def rms_norm(
    x: Any,
    residual: Any,
    out: Any,
    weight: Any,
    num_rows: Any,
    group: Any,
    size: Any,
    x_stride: Any,
    x_group_stride: Any,
    residual_stride: Any,
    out_stride: Any,
    out_group_stride: Any,
    weight_stride: Any,
    eps: Any,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Row r is member r % group of token r // group; a residual has groups of one, and x is added to it in place."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < num_rows)[:, None] & (column < size)
    token, member = row // group, row % group
    value = tl.load(x + (token * x_stride + member * x_group_stride)[:, None] + column, mask, other=0.0).to(tl.float32)
    if residual is not None:
        place = residual + (token * residual_stride)[:, None] + column
        total = (value + tl.load(place, mask, other=0.0)).to(residual.dtype.element_ty)
        tl.store(place, total, mask)
        value = total.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(value * value, 1) / size + eps)
    factor = tl.load(weight + (member * weight_stride)[:, None] + column, mask, other=0.0).to(tl.float32)
    normed = (value * inverse[:, None] * factor).to(out.dtype.element_ty)
    tl.store(out + (token * out_stride + member * out_group_stride)[:, None] + column, normed, mask)
