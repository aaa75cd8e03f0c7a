"""Attention: over pages of the arena (`PAGED_ATTENTION`), within one flattened batch whose sequences lie one behind
another (`RAGGED_ATTENTION`), and within equally long sequences (`DENSE_ATTENTION`).

Shape suffixes: T tokens of all rows, R rows, B equally long sequences, L queries and M keys of each, H query heads, K
key heads, D head size. Key heads divide query heads (grouped-query attention). Rows attend causally unless said
otherwise; dense attention is not causal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..registry import Need, Operation, Target

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


def needs_of(layers: Iterable[ScoreOptions], *, has_sinks: bool = False) -> frozenset[Need]:
    """What backends a model's layers ask for, for `Target`."""
    needs: set[Need] = {"sinks"} if has_sinks else set()
    for options in layers:
        if options.softcap is not None:
            needs.add("softcap")
        if options.window is not None:
            needs.add("window")
    return frozenset(needs)


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


class FixedPlan(Protocol):
    """A plan of exactly `num_rows` decodes whose device buffers stay where they are: a graph captured with it can be
    replayed for other rows after `set`.

    Before a capture, set rows and run every layer once outside of it: what depends on a layer's options is made then.
    """

    num_rows: int
    max_pages: int

    def set(self, rows: PagedRows) -> None:
        """From now on it is for these rows; enqueues copies on the current stream.

        Raises:
            ValueError: other than `num_rows` decodes, or more than `max_pages` pages in sum.
        """
        ...


def fixed_pages(plan: FixedPlan, rows: PagedRows, page_len: int) -> Ints:
    """[R] pages of each row.

    Raises:
        ValueError: the plan is not for such rows.
    """
    if rows.num_decodes != plan.num_rows or len(rows.new_lens) != plan.num_rows:
        raise ValueError(
            f"A plan for exactly {plan.num_rows} decodes was given {rows.num_decodes} of {len(rows.new_lens)} rows."
        )
    num_pages_R: Ints = -(-rows.context_lens // page_len)
    if num_pages_R.sum() > plan.max_pages:
        raise ValueError(f"A plan for {plan.max_pages} pages in sum was given {num_pages_R.sum()}.")
    return num_pages_R


class PagedAttention(Protocol):
    """Attention over pages, for one page class of one model. Plans and runs of one instance share workspaces: they
    belong on one stream.

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

    def fixed_plan(self, num_rows: int, max_pages: int) -> FixedPlan | None:
        """A plan that graphs can be captured with, or None where the backend has none.

        Args:
            max_pages: of all rows in sum.
        """
        ...

    def run(self, layer: int, q_THD: Tensor, plan: Any, options: ScoreOptions, sinks_H: Tensor | None = None) -> Tensor:
        """[T, H, D]. The step's own keys and values are in the pages already.

        Args:
            plan: from `plan`, or from `fixed_plan` with its rows set.
            sinks_H: one more logit per head in every softmax, whose weight goes nowhere. Only where the backend was
                resolved for a target that needs "sinks".
        """
        ...


class RaggedAttention(Protocol):
    """Attention of each sequence to itself. Runs of one instance share workspaces: they belong on one stream."""

    def __init__(self) -> None: ...

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    def run(
        self,
        q_THD: Tensor,
        k_TKD: Tensor,
        v_TKD: Tensor,
        lens: Sequence[int],
        options: ScoreOptions,
        *,
        is_causal: bool = True,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        """[T, H, D]; `lens` are the sequences' lengths, their sum is T.

        Raises:
            RuntimeError: a graph is being captured, and the same call was not made before, outside of the capture.
        """
        ...


class DenseAttention(Protocol):
    """Attention of equally long sequences, not causal; scores are divided by the root of the head size."""

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def run(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None = None) -> Tensor:
        """[B, L, H, D].

        Args:
            bias: added to the scores [B, H, L, M], or broadcast to them. Only where the backend was resolved for a
                target that needs "bias".
        """
        ...


# TFLOP/s on an H200, bfloat16. Ragged: segments of 1536, 2816 and 4608 tokens, 24 heads of 128, not causal (FlashInfer
# by fa3). Dense: 4608 tokens, 24 heads of 128.
_RAGGED_TFLOPS = {(9, 0): {"flashinfer": 693.0, "cudnn": 631.0}}
_DENSE_TFLOPS = {(9, 0): {"cudnn": 652.0, "flash": 335.0, "xformers": 326.0}}

_HERE = "hemiola.kernels.attention"

PAGED_ATTENTION: Operation[PagedAttention] = Operation(
    "paged_attention",
    {
        "flashinfer": f"{_HERE}.paged_flashinfer:FlashInferPagedAttention",
        "torch": f"{_HERE}.paged_torch:TorchPagedAttention",
    },
)
RAGGED_ATTENTION: Operation[RaggedAttention] = Operation(
    "ragged_attention",
    {
        "flashinfer": f"{_HERE}.ragged_flashinfer:FlashInferRaggedAttention",
        "cudnn": f"{_HERE}.ragged_torch:CudnnRaggedAttention",
        "xformers": f"{_HERE}.by_xformers:XformersRaggedAttention",
        "torch": f"{_HERE}.ragged_torch:TorchRaggedAttention",
    },
    tflops=_RAGGED_TFLOPS,
)
DENSE_ATTENTION: Operation[DenseAttention] = Operation(
    "dense_attention",
    {
        "cudnn": f"{_HERE}.dense_torch:CudnnDenseAttention",
        "flash": f"{_HERE}.dense_torch:FlashDenseAttention",
        "xformers": f"{_HERE}.by_xformers:XformersDenseAttention",
        "torch": f"{_HERE}.dense_torch:TorchDenseAttention",
    },
    tflops=_DENSE_TFLOPS,
)
