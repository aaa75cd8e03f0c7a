"""What stands behind a model's `Attend`: pages of the arena, or the flattened batch itself.

Shape suffixes: T tokens, H query heads, K key heads, D head size.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..kernels.attention import PagedAttention, RaggedAttention, ScoreOptions
from ..kernels.kv_store import KvStore


class PagedAttend:
    """Stores the step's keys and values into pages, then attends over each row's pages.

    Args:
        layer_pages: per layer [page, 2, page_len, kv_head, head_dim].
        plan: of the attention backend, for this step.
        page_idx_T, offset_T: where each token's key and value go.
    """

    __slots__ = ("_attention", "_layer_pages", "_offset_T", "_page_idx_T", "_plan", "_store")

    def __init__(
        self,
        store: type[KvStore],
        attention: PagedAttention,
        layer_pages: Sequence[Tensor],
        plan: Any,
        page_idx_T: Tensor,
        offset_T: Tensor,
    ) -> None:
        self._store = store.store
        self._attention = attention
        self._layer_pages = layer_pages
        self._plan = plan
        self._page_idx_T, self._offset_T = page_idx_T, offset_T

    def __call__(
        self, layer: int, q_THD: Tensor, kv_T2KD: Tensor, options: ScoreOptions, sinks_H: Tensor | None = None
    ) -> Tensor:
        self._store(self._layer_pages[layer], kv_T2KD, self._page_idx_T, self._offset_T)
        return self._attention.run(layer, q_THD, self._plan, options, sinks_H)


class RaggedAttend:
    """Attends causally within each sequence of the flattened batch; keeps nothing."""

    __slots__ = ("_lens", "_run")

    def __init__(self, attention: RaggedAttention, lens: Sequence[int]) -> None:
        self._run = attention.run
        self._lens = lens

    def __call__(
        self, layer: int, q_THD: Tensor, kv_T2KD: Tensor, options: ScoreOptions, sinks_H: Tensor | None = None
    ) -> Tensor:
        k_TKD, v_TKD = kv_T2KD.unbind(1)
        return self._run(q_THD, k_TKD, v_TKD, self._lens, options, sinks_H=sinks_H)
