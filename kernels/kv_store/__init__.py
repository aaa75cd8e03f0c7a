"""Writes new keys and values into pages."""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


class KvStore(Protocol):
    """Writes into one layer's view of the arena."""

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def store(pages: Tensor, kv_T2HD: Tensor, page_idx_T: Tensor, offset_T: Tensor) -> None:
        """Token t's key and value go to `pages[page_idx[t], :, offset[t]]`.

        Args:
            pages: [page, 2, page_len, kv_head, head_dim], strided.
            kv_T2HD: keys and values of the step's tokens; may be a strided view.
            page_idx_T, offset_T: int64.
        """
        ...


KV_STORE: Operation[KvStore] = Operation(
    "kv_store",
    {
        "triton": "hemiola.kernels.kv_store.triton_backend:TritonKvStore",
        "torch": "hemiola.kernels.kv_store.torch_reference:TorchKvStore",
    },
)
