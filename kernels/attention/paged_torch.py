"""Torch reference of paged attention: gathers each row's pages, then attends densely. Made to be fast on a CPU.

Rows that decode are grouped by length and padded within their group, one gather and one attention a group; rows that
prefill run one by one. The geometry of a step (indices and masks) is computed once per window size, for all layers.
Shape suffixes: T tokens, R rows of a group, H query heads, K key heads, G = H / K, N new tokens, L keys, D head size.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..registry import Target
from . import Ints, PagedRows, ScoreOptions
from .paged_fixed_torch import TorchFixedPlan
from .scores import attend, causal_mask

# A group costs about as much as attending to this many keys; so rows are padded up to that much in sum.
MAX_PADDED_KEYS = 256


@dataclass(frozen=True, slots=True)
class _DecodeGroup:
    """Rows [start, end) of the step; `blocks` are the indices of all keys' blocks, then all values'."""

    start: int
    end: int
    blocks: Tensor
    num_keys: int
    mask_R11L: Tensor | None


@dataclass(frozen=True, slots=True)
class _PrefillRow:
    """Tokens [start, end) of the step."""

    start: int
    end: int
    blocks: Tensor
    num_keys: int
    is_whole: bool
    mask_NL: Tensor | None


@dataclass(frozen=True, slots=True)
class _Geometry:
    decodes: list[_DecodeGroup]
    prefills: list[_PrefillRow]


@dataclass(slots=True)
class TorchPagedPlan:
    """A step's rows, and their geometry per window size met so far."""

    rows: PagedRows
    by_window: dict[int | None, _Geometry] = field(default_factory=dict)


class TorchPagedAttention:
    """See `PagedAttention`."""

    needs_clean_pages = True

    def __init__(self, pages: Tensor) -> None:
        _, num_layers, _, page_len, num_kv_heads, head_dim = pages.shape
        self._page_len, self._num_kv_heads, self._head_dim = page_len, num_kv_heads, head_dim
        self._pages = pages
        self._like = pages[:0, 0, 0, 0, 0, 0]
        # Keys (or values) of one page and layer are one contiguous block; blocks of the whole arena as rows.
        block = page_len * num_kv_heads * head_dim
        if pages.stride(0) % block or pages.stride()[1:] != torch.empty(pages.shape[1:], device="meta").stride():
            raise ValueError(f"Pages of strides {pages.stride()} are not made of whole contiguous blocks.")
        self._blocks_per_page = pages.stride(0) // block
        num_blocks = (pages.shape[0] - 1) * self._blocks_per_page + 2
        self._blocks = [
            pages.as_strided((num_blocks, block), (block, 1), pages.storage_offset() + layer * 2 * block)
            for layer in range(num_layers)
        ]

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def plan(self, rows: PagedRows) -> TorchPagedPlan:
        return TorchPagedPlan(rows)

    def fixed_plan(self, num_rows: int, max_pages: int) -> TorchFixedPlan | None:
        # Every row attends to the pages of all of them there, which a GPU is better spared.
        on_cpu = self._like.device.type == "cpu"
        return TorchFixedPlan(num_rows, max_pages, self._page_len, self._like.device) if on_cpu else None

    def run(
        self,
        layer: int,
        q_THD: Tensor,
        plan: TorchPagedPlan | TorchFixedPlan,
        options: ScoreOptions,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        if isinstance(plan, TorchFixedPlan):
            return plan.attend(self._pages[:, layer], q_THD, options, sinks_H)
        geometry = plan.by_window.get(options.window)
        if geometry is None:
            geometry = plan.by_window[options.window] = self._geometry(plan.rows, options.window)
        blocks = self._blocks[layer]
        if len(geometry.decodes) == 1 and not geometry.prefills:
            return self._decode(blocks, q_THD, geometry.decodes[0], options, sinks_H)
        out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format)
        for group in geometry.decodes:
            rows = slice(group.start, group.end)
            out_THD[rows] = self._decode(blocks, q_THD[rows], group, options, sinks_H)
        for row in geometry.prefills:
            tokens = slice(row.start, row.end)
            self._prefill(blocks, q_THD[tokens], row, options, sinks_H, out_THD[tokens])
        return out_THD

    def _decode(
        self, blocks: Tensor, q_RHD: Tensor, group: _DecodeGroup, options: ScoreOptions, sinks_H: Tensor | None
    ) -> Tensor:
        num_rows, num_kv = group.end - group.start, self._num_kv_heads
        kv = blocks.index_select(0, group.blocks).view(2, num_rows, -1, num_kv, self._head_dim).transpose(2, 3)
        if group.mask_R11L is None:
            kv = kv[:, :, :, : group.num_keys]
        k_RKLD, v_RKLD = kv.unbind(0)
        # The queries of a key head take the place of query positions: no key is repeated.
        q_RKGD = q_RHD.reshape(num_rows, num_kv, -1, self._head_dim)
        sinks = None if sinks_H is None else sinks_H.view(1, num_kv, -1, 1)
        out_RKGD = attend(q_RKGD, k_RKLD, v_RKLD, options, mask=group.mask_R11L, sinks=sinks)
        return out_RKGD.reshape(q_RHD.shape)

    def _prefill(
        self,
        blocks: Tensor,
        q_NHD: Tensor,
        row: _PrefillRow,
        options: ScoreOptions,
        sinks_H: Tensor | None,
        out_NHD: Tensor,
    ) -> None:
        num_new, num_kv = q_NHD.shape[0], self._num_kv_heads
        kv = blocks.index_select(0, row.blocks).view(2, -1, num_kv, self._head_dim)[:, : row.num_keys]
        q_KGND = q_NHD.reshape(num_new, num_kv, -1, self._head_dim).permute(1, 2, 0, 3)
        k_KGLD, v_KGLD = kv.transpose(1, 2).unsqueeze(2).expand(-1, -1, q_KGND.shape[1], -1, -1).unbind(0)
        sinks = None if sinks_H is None else sinks_H.view(num_kv, -1, 1, 1)
        out_KGND = attend(q_KGND, k_KGLD, v_KGLD, options, mask=row.mask_NL, is_causal=row.is_whole, sinks=sinks)
        out_NHD.unflatten(1, (num_kv, -1)).copy_(out_KGND.permute(2, 0, 1, 3))

    # Geometry

    def _geometry(self, rows: PagedRows, window: int | None) -> _Geometry:
        num_decodes = rows.num_decodes
        prefills = []
        start = num_decodes
        for i in range(num_decodes, len(rows.new_lens)):
            end = start + rows.new_lens[i]
            prefills.append(self._prefill_row(rows, i, start, end, window))
            start = end
        return _Geometry(self._decode_groups(rows, window) if num_decodes else [], prefills)

    def _decode_groups(self, rows: PagedRows, window: int | None) -> list[_DecodeGroup]:
        context_R = rows.context_lens[: rows.num_decodes]
        first_key_R = np.zeros_like(context_R) if window is None else np.maximum(context_R - window, 0)
        first_page_R = first_key_R // self._page_len
        skipped_R = first_page_R * self._page_len
        groups, start = [], 0
        for end in _group_ends((context_R - skipped_R).tolist()):
            one = slice(start, end)
            keys_R, hidden_R = (context_R - skipped_R)[one], (first_key_R - skipped_R)[one]
            blocks, num_keys = self._blocks_of(rows.page_table[one], first_page_R[one], keys_R)
            is_even = not hidden_R.any() and bool((keys_R == keys_R[0]).all())
            mask = None if is_even else self._key_mask(hidden_R, keys_R, num_keys)
            groups.append(_DecodeGroup(start, end, blocks, int(keys_R[0]) if is_even else num_keys, mask))
            start = end
        return groups

    def _prefill_row(self, rows: PagedRows, i: int, start: int, end: int, window: int | None) -> _PrefillRow:
        context, num_new = int(rows.context_lens[i]), rows.new_lens[i]
        first_key = 0 if window is None else max(context - num_new - window + 1, 0)
        first_page = first_key // self._page_len
        num_keys = context - first_page * self._page_len
        table = rows.page_table[i : i + 1]
        blocks, _ = self._blocks_of(table, np.array([first_page]), np.array([num_keys]))
        is_whole = num_keys == num_new and (window is None or window >= num_keys)
        mask = None if is_whole else causal_mask(num_new, num_keys, window, self._like)
        return _PrefillRow(start, end, blocks, num_keys, is_whole, mask)

    def _blocks_of(self, table_RP: Ints, first_page_R: Ints, keys_R: Ints) -> tuple[Tensor, int]:
        """Indices of the blocks of all rows, keys before values, and keys per row with padding.

        Rows are padded with their own last page, whose numbers are finite.
        """
        num_pages_R = -(-keys_R // self._page_len)
        most = int(num_pages_R.max())
        column_RP = first_page_R[:, None] + np.minimum(np.arange(most), (num_pages_R - 1)[:, None])
        pages_RP = np.take_along_axis(table_RP, column_RP, 1)
        key_blocks = pages_RP.reshape(-1).astype(np.int64) * self._blocks_per_page
        blocks = torch.from_numpy(np.concatenate((key_blocks, key_blocks + 1)))
        return blocks.to(self._like.device), most * self._page_len

    def _key_mask(self, hidden_R: Ints, keys_R: Ints, num_keys: int) -> Tensor:
        key = np.arange(num_keys)
        is_hidden = (key >= keys_R[:, None]) | (key < hidden_R[:, None])
        mask = np.where(is_hidden, np.float32("-inf"), np.float32(0))
        return torch.from_numpy(mask).to(self._like.device, self._like.dtype)[:, None, None]


def _group_ends(num_keys: list[int]) -> list[int]:
    """Where groups of neighbouring rows end, so that padding stays small; rows sorted by length make few groups."""
    ends = []
    longest = padded = start = 0
    for i, keys in enumerate(num_keys):
        if keys > longest:
            padded += (keys - longest) * (i - start)
            longest = keys
        else:
            padded += longest - keys
        if padded > MAX_PADDED_KEYS:
            ends.append(i)
            longest, padded, start = keys, 0, i
    ends.append(len(num_keys))
    return ends
