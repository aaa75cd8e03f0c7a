"""Triton kernel of the store."""

from typing import Any

import triton.language as tl

from ..triton_jit import kernel


@kernel()
def store(
    pages: Any,
    kv: Any,
    page_idx: Any,
    offset: Any,
    page_stride: Any,
    part_stride: Any,
    offset_stride: Any,
    head_stride: Any,
    kv_stride: Any,
    kv_part_stride: Any,
    kv_head_stride: Any,
    num_heads: Any,
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
