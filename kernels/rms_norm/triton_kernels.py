"""Triton kernel of RMS norm: one pass over tiles of a few whole rows."""

import triton.language as tl

from ..triton_jit import kernel


@kernel("num_rows")
def rms_norm(
    x: tl.tensor,
    residual: tl.tensor,
    out: tl.tensor,
    weight: tl.tensor,
    num_rows: tl.tensor,
    group: tl.tensor,
    size: tl.tensor,
    x_stride: tl.tensor,
    x_group_stride: tl.tensor,
    residual_stride: tl.tensor,
    out_stride: tl.tensor,
    out_group_stride: tl.tensor,
    weight_stride: tl.tensor,
    eps: tl.tensor,
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
