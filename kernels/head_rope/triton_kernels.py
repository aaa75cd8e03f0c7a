"""Triton kernel of the heads' norm and rotation: a program takes all heads of one token."""

import triton.language as tl

from ..triton_jit import kernel


@kernel("length")
def norm_and_rotate(
    x: tl.tensor,
    rope: tl.tensor,
    weight: tl.tensor,
    length: tl.tensor,
    num_heads: tl.tensor,
    size: tl.tensor,
    segment_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    rope_segment_stride: tl.tensor,
    rope_token_stride: tl.tensor,
    eps: tl.tensor,
    IS_JOINT: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
) -> None:
    """In place. rope: float32 (cos, sin) of each pair; a joint norm is one of all heads together."""
    place = tl.program_id(0).to(tl.int64)
    segment, token = place // length, place % length
    head = tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, 2 * PAIRS)[None, :]
    mask = (head < num_heads) & (column < size)
    at = x + segment * segment_stride + token * token_stride + head * head_stride + column
    value = tl.load(at, mask, other=0.0).to(tl.float32)
    if weight is not None:
        squares = tl.sum(value * value, 1)
        if IS_JOINT:
            inverse = tl.rsqrt(tl.sum(squares, 0) / (num_heads * size) + eps)
            value = value * inverse * tl.load(weight + head * size + column, mask, other=0.0).to(tl.float32)
        else:
            factor = tl.load(weight + column, column < size, other=0.0).to(tl.float32)
            value = value * tl.rsqrt(squares / size + eps)[:, None] * factor
    if rope is not None:
        angle = rope + segment * rope_segment_stride + token * rope_token_stride + column
        turn = tl.load(angle, column < size, other=0.0)
        c, s = tl.split(tl.reshape(turn, (1, PAIRS, 2)))
        a, b = tl.split(tl.reshape(value, (HEADS, PAIRS, 2)))
        value = tl.reshape(tl.join(a * c - b * s, b * c + a * s), (HEADS, 2 * PAIRS))
    tl.store(at, value.to(x.dtype.element_ty), mask)
