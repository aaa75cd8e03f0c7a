"""Paged attention by FlashInfer: decodes with tensor cores, chunks by fa3 on Hopper and by fa2 elsewhere.

Pages go in as they lie in the arena, one strided view per layer. Options of layers (window, cap, scale) are part of
FlashInfer's plan, so a step is planned once per kind of layer, when the first of them runs.
Measured on an H200, 64 rows of 2048 tokens, 32 query and 8 key heads of 128, bfloat16: 0.135 ms, 3.97 TB/s. Chunks of
1024 after 1024 tokens: 476 TFLOP/s.
Shape suffixes: T tokens, R rows, P pages of all rows, H query heads, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..captured import keep
from ..registry import Target
from . import Ints, PagedRows, ScoreOptions, fixed_pages
from .flashinfer_wrapper import (
    Workspace,
    Wrapper,
    chunk_kernel,
    float_bytes,
    objection,
    parameters,
    refuse_capture,
    sized,
)

Kind = Literal["decodes", "chunks"]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The decodes or the chunks of a step. int32; all on the host, but for the pages.

    Fields:
        query_start: [R + 1] where each row's tokens start, among those of the part.
        page_start: [R + 1] where each row's entries start in `page_P`.
        last_len: [R] keys in each row's last page.
    """

    kind: Kind
    query_start: Tensor
    page_start: Tensor
    page_P: Tensor
    last_len: Tensor


@dataclass(frozen=True, slots=True)
class FlashInferPlan:
    """A step's rows."""

    num_decodes: int
    decodes: _Part | None
    chunks: _Part | None


@dataclass(frozen=True, slots=True)
class _Variant:
    """What a FlashInfer plan is made for, beside the rows."""

    options: ScoreOptions
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_len: int
    dtype: torch.dtype

    def plan(self, wrapper: Wrapper, part: _Part) -> None:
        sizes = (self.num_heads, self.num_kv_heads, self.head_dim, self.page_len)
        keywords = dict(q_data_type=self.dtype, **parameters(self.options))
        if part.kind == "decodes":
            wrapper.plan(part.page_start, part.page_P, part.last_len, *sizes, **keywords)
        else:
            rows = (part.query_start, part.page_start, part.page_P, part.last_len)
            wrapper.plan(*rows, *sizes, causal=True, **keywords)

    def float_bytes(self, device: torch.device, num_rows: int = 0) -> int:
        return float_bytes(self.num_heads, self.num_kv_heads, self.head_dim, device, num_rows)


class _Slot:
    """A wrapper, and the part it was planned for last."""

    def __init__(self, wrapper: Wrapper) -> None:
        self.wrapper = wrapper
        self.part: _Part | None = None


class FlashInferPagedAttention:
    """See `PagedAttention`."""

    needs_clean_pages = False

    def __init__(self, pages: Tensor) -> None:
        self._device = pages.device
        self._page_len = pages.shape[3]
        self._layers = [pages[:, layer] for layer in range(pages.shape[1])]
        self._workspace = Workspace(self._device)
        # Two of each kind and variant: steps may be planned in turn while two of them are in flight.
        self._slots: dict[tuple[Kind, _Variant], list[_Slot]] = {}

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return objection(target)

    def plan(self, rows: PagedRows) -> FlashInferPlan:
        num_pages_R = -(-rows.context_lens // self._page_len)
        page_P = _page_ids(rows, num_pages_R, self._device)
        n = rows.num_decodes
        cut = int(num_pages_R[:n].sum())
        decodes, chunks = None, None
        if n:
            decodes = _part("decodes", [1] * n, rows.context_lens[:n], num_pages_R[:n], page_P[:cut], self._page_len)
        if n < len(rows.new_lens):
            chunks = _part(
                "chunks", rows.new_lens[n:], rows.context_lens[n:], num_pages_R[n:], page_P[cut:], self._page_len
            )
        return FlashInferPlan(n, decodes, chunks)

    def fixed_plan(self, num_rows: int, max_pages: int) -> "FlashInferFixedPlan":
        return FlashInferFixedPlan(num_rows, max_pages, self._page_len, self._workspace, self._device)

    def run(
        self,
        layer: int,
        q_THD: Tensor,
        plan: "FlashInferPlan | FlashInferFixedPlan",
        options: ScoreOptions,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        if sinks_H is not None:
            raise ValueError("FlashInfer has no attention sinks: resolve the backend for a target that needs 'sinks'.")
        pages = self._layers[layer]
        num_heads, head_dim = q_THD.shape[1:]
        variant = _Variant(options, num_heads, pages.shape[3], head_dim, self._page_len, q_THD.dtype)
        if isinstance(plan, FlashInferFixedPlan):
            return plan.attend(pages, q_THD, variant)
        out_THD = torch.empty(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
        for part, tokens in (
            (plan.decodes, slice(0, plan.num_decodes)),
            (plan.chunks, slice(plan.num_decodes, None)),
        ):
            if part is not None:
                self._planned(part, variant).run(q_THD[tokens], pages, out=out_THD[tokens])
        return out_THD

    def _planned(self, part: _Part, variant: _Variant) -> Wrapper:
        """A wrapper that is planned for the part; of the two there are, the one that was planned longer ago."""
        slots = self._slots.get((part.kind, variant))
        if slots is None:
            refuse_capture()
            slots = self._slots[part.kind, variant] = [_Slot(self._wrapper(part.kind, variant)) for _ in range(2)]
        for slot in slots:
            if slot.part is part:
                return slot.wrapper
        slots.reverse()
        slot = slots[0]
        slot.part = None  # until the plan has succeeded it is for nobody
        variant.plan(slot.wrapper, part)
        slot.part = part
        return slot.wrapper

    @torch.inference_mode(False)  # buffers that inference mode made could not be written outside of it
    def _wrapper(self, kind: Kind, variant: _Variant) -> Wrapper:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper

        workspace = self._workspace.of(variant.float_bytes(self._device))
        if kind == "decodes":
            return Wrapper(BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True))
        return Wrapper(BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend=chunk_kernel(self._device)))


class FlashInferFixedPlan:
    """See `FixedPlan`. One wrapper per variant; all of them read the same three buffers."""

    @torch.inference_mode(False)
    def __init__(
        self, num_rows: int, max_pages: int, page_len: int, workspace: Workspace, device: torch.device
    ) -> None:
        self.num_rows, self.max_pages = num_rows, max_pages
        self._page_len, self._workspace, self._device = page_len, workspace, device
        self._page_start = torch.zeros(num_rows + 1, dtype=torch.int32, device=device)
        self._page_P = torch.zeros(max_pages, dtype=torch.int32, device=device)
        self._last_len = torch.ones(num_rows, dtype=torch.int32, device=device)
        self._wrappers: dict[_Variant, Wrapper] = {}
        self._part: _Part | None = None

    def set(self, rows: PagedRows) -> None:
        num_pages_R = fixed_pages(self, rows, self._page_len)
        page_P = _page_ids(rows, num_pages_R, self._device)
        self._part = _part("decodes", rows.new_lens, rows.context_lens, num_pages_R, page_P, self._page_len)
        for variant, wrapper in self._wrappers.items():
            variant.plan(wrapper, self._part)

    def attend(self, pages: Tensor, q_RHD: Tensor, variant: _Variant) -> Tensor:
        """[R, H, D]; pages are [page, 2, page_len, kv_head, head_dim]."""
        wrapper = self._wrappers.get(variant)
        if wrapper is None:
            if self._part is None:
                raise RuntimeError("A fixed plan was run before its rows were set.")
            refuse_capture()
            wrapper = self._wrapper(variant)
            variant.plan(wrapper, self._part)
            self._wrappers[variant] = wrapper
        keep(self, wrapper)
        out_RHD: Tensor = wrapper.run(q_RHD, pages)
        return out_RHD

    @torch.inference_mode(False)
    def _wrapper(self, variant: _Variant) -> Wrapper:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper

        wrapper = BatchDecodeWithPagedKVCacheWrapper(
            self._workspace.of(variant.float_bytes(self._device, self.num_rows)),
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=self._page_start,
            paged_kv_indices_buffer=self._page_P,
            paged_kv_last_page_len_buffer=self._last_len,
        )
        return Wrapper(sized(wrapper, 64 * (self.num_rows * variant.num_heads + 1024)))


def _page_ids(rows: PagedRows, num_pages_R: Ints, device: torch.device) -> Tensor:
    """[P] pages of all rows, one row after another. Copied from pinned memory, which torch keeps until it has been."""
    is_used_RP = np.arange(rows.page_table.shape[1]) < num_pages_R[:, None]
    page_P = torch.empty(int(num_pages_R.sum()), dtype=torch.int32, pin_memory=device.type == "cuda")
    page_P.numpy()[:] = rows.page_table[is_used_RP]
    return page_P.to(device, non_blocking=True)


def _part(
    kind: Kind, new_lens: Sequence[int], context_R: Ints, num_pages_R: Ints, page_P: Tensor, page_len: int
) -> _Part:
    last_len_R = context_R - (num_pages_R - 1) * page_len
    return _Part(kind, _starts(new_lens), _starts(num_pages_R), page_P, torch.from_numpy(last_len_R.astype(np.int32)))


def _starts(lens: Sequence[int] | Ints) -> Tensor:
    starts = np.zeros(len(lens) + 1, dtype=np.int32)
    np.cumsum(lens, out=starts[1:])
    return torch.from_numpy(starts)
