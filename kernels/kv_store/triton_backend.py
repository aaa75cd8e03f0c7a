"""The store in one Triton kernel a layer."""

import torch
from torch import Tensor

from .. import triton_target
from ..registry import Target


class TritonKvStore:
    """See `KvStore`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    @staticmethod
    def store(pages: Tensor, kv_T2HD: Tensor, page_idx_T: Tensor, offset_T: Tensor) -> None:
        num_tokens, _, num_heads, size = kv_T2HD.shape
        assert pages.stride(4) == 1 and kv_T2HD.stride(3) == 1, "heads must be contiguous"
        assert page_idx_T.dtype == offset_T.dtype == torch.int64, "offsets into the arena need 64 bits"
        if num_tokens == 0:
            return
        block = triton_target.power_of_two(num_heads * size)
        triton_target.kernels_of(__package__).store[(num_tokens, 2)](
            pages,
            kv_T2HD,
            page_idx_T,
            offset_T,
            *pages.stride()[:4],
            *kv_T2HD.stride()[:3],
            num_heads,
            SIZE=size,
            BLOCK=block,
            num_warps=triton_target.num_warps(block),
        )
