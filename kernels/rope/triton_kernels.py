"""Triton kernel of rotary embedding, in the half-split pairing, behind the norm of heads."""

import triton.language as tl

from ..triton_jit import kernel


@kernel()
def rotate(
    x: tl.tensor,
    weight: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    num_heads: tl.tensor,
    num_pairs: tl.tensor,
    x_stride: tl.tensor,
    head_stride: tl.tensor,
    eps: tl.tensor,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
) -> None:
    """A program turns HEADS heads of one token. weight: [num_heads, 2 num_pairs] of a norm, or None. cos and sin:
    float32 [T, num_pairs]."""
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    pair = tl.arange(0, PAIRS)[None, :]
    mask = (head < num_heads) & (pair < num_pairs)
    angle = token * num_pairs + pair
    c = tl.load(cos + angle, pair < num_pairs, other=0.0)
    s = tl.load(sin + angle, pair < num_pairs, other=0.0)
    place = x + token * x_stride + head * head_stride + pair
    a = tl.load(place, mask, other=0.0).to(tl.float32)
    b = tl.load(place + num_pairs, mask, other=0.0).to(tl.float32)
    if weight is not None:
        inverse = tl.rsqrt(tl.sum(a * a + b * b, 1) / (2 * num_pairs) + eps)[:, None]
        factor = weight + head * 2 * num_pairs + pair
        a = a * inverse * tl.load(factor, mask, other=0.0).to(tl.float32)
        b = b * inverse * tl.load(factor + num_pairs, mask, other=0.0).to(tl.float32)
    tl.store(place, (a * c - b * s).to(x.dtype.element_ty), mask)
    tl.store(place + num_pairs, (b * c + a * s).to(x.dtype.element_ty), mask)
