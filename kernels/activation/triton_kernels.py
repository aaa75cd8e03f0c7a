"""Triton kernel of gated activations."""

import triton.language as tl

from ..triton_jit import kernel


@kernel()
def gated(
    gate: tl.tensor,
    up: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    gate_stride: tl.tensor,
    up_stride: tl.tensor,
    out_stride: tl.tensor,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """A program takes BLOCK columns of one row; out may be gate."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < size
    g = tl.load(gate + row * gate_stride + column, mask, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_stride + column, mask, other=0.0).to(tl.float32)
    if KIND == "silu":
        g = g * tl.sigmoid(g)
    elif KIND == "gelu":
        g = 0.5 * g * (1 + tl.erf(g * 0.7071067811865476))
    else:  # (1 + tanh(z)) / 2 = sigmoid(2 z), with z = sqrt(2 / pi) (g + 0.044715 g^3)
        g = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g))
    tl.store(out + row * out_stride + column, (g * u).to(out.dtype.element_ty), mask)
