"""Torch reference of the store: one indexed write for keys and values together."""

from torch import Tensor

from ..registry import Target


class TorchKvStore:
    """See `KvStore`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def store(pages: Tensor, kv_T2HD: Tensor, page_idx_T: Tensor, offset_T: Tensor) -> None:
        pages.transpose(1, 2).index_put_((page_idx_T, offset_T), kv_T2HD)
