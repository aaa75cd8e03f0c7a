"""Attention of language models: over pages of the arena (`PAGED_ATTENTION`), or within one flattened batch whose
sequences lie one behind another (`RAGGED_ATTENTION`).

Shape suffixes: T tokens of all rows, R rows, H query heads, D head size. Key heads divide query heads (grouped-query
attention). Rows attend causally unless said otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..registry import Operation, Target

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What a layer does to its scores.

    Fields:
        scale: queries times keys times this.
        softcap: scores become softcap * tanh(scores / softcap); None leaves them.
        window: a query sees this many keys, itself included; None sees all.
    """

    scale: float
    softcap: float | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class PagedRows:
    """The rows of a step as attention sees them. Host arrays; the first `num_decodes` rows have one new token.

    Fields:
        new_lens: tokens of each row in this step; their sum is T.
        context_lens: [R] keys of each row, those of the new tokens included.
        page_table: [R, P] page ids; what lies behind a row's pages is never read.
    """

    num_decodes: int
    new_lens: Sequence[int]
    context_lens: Ints
    page_table: Ints


class PagedAttention(Protocol):
    """Attention over pages, for one page class of one model.

    `needs_clean_pages`: whether bytes of a page that no token was written to must be finite numbers, because the
    backend reads them (and gives them no weight). Whoever takes pages then clears them.
    """

    needs_clean_pages: bool

    def __init__(self, pages: Tensor) -> None:
        """Args:
        pages: [page, layer, 2, page_len, kv_head, head_dim] over the arena, strided over pages.
        """
        ...

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    def plan(self, rows: PagedRows) -> Any:
        """What all layers of a step need, computed once."""
        ...

    def run(self, layer: int, q_THD: Tensor, plan: Any, options: ScoreOptions, sinks_H: Tensor | None = None) -> Tensor:
        """[T, H, D]. The step's own keys and values are in the pages already.

        Args:
            sinks_H: one more logit per head in every softmax, whose weight goes nowhere.
        """
        ...


class RaggedAttention(Protocol):
    """Attention of each sequence to itself."""

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def run(
        q_THD: Tensor,
        k_THD: Tensor,
        v_THD: Tensor,
        lens: Sequence[int],
        options: ScoreOptions,
        *,
        is_causal: bool = True,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        """[T, H, D]; `lens` are the sequences' lengths, their sum is T."""
        ...


PAGED_ATTENTION: Operation[PagedAttention] = Operation(
    "paged_attention", {"torch": "hemiola.kernels.attention.paged_torch:TorchPagedAttention"}
)
RAGGED_ATTENTION: Operation[RaggedAttention] = Operation(
    "ragged_attention", {"torch": "hemiola.kernels.attention.ragged_torch:TorchRaggedAttention"}
)
