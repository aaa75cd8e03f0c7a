"""Triton kernel of the store."""

import triton.language as tl

from ..triton_jit import kernel


@kernel()
def store(
    pages: tl.tensor,
    kv: tl.tensor,
    page_idx: tl.tensor,
    offset: tl.tensor,
    page_stride: tl.tensor,
    part_stride: tl.tensor,
    offset_stride: tl.tensor,
    head_stride: tl.tensor,
    kv_stride: tl.tensor,
    kv_part_stride: tl.tensor,
    kv_head_stride: tl.tensor,
    num_heads: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """A program copies all heads of one token's keys (part 0) or values (part 1)."""
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    index = tl.arange(0, BLOCK)
    head, column = index // SIZE, index % SIZE
    mask = head < num_heads
    page, slot = tl.load(page_idx + token), tl.load(offset + token)
    value = tl.load(kv + token * kv_stride + part * kv_part_stride + head * kv_head_stride + column, mask)
    place = pages + page * page_stride + slot * offset_stride + part * part_stride
    tl.store(place + head * head_stride + column, value.to(pages.dtype.element_ty), mask)
