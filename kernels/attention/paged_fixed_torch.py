"""Torch reference of a fixed plan: tensors that stay where they are, so that a graph can be replayed for other rows.

Pages of all rows lie in one list of `max_pages` entries; every row attends to the whole list and masks what is not its
own. Exact and static, but rows times as much work as is needed: it shows what a fixed plan does, on a CPU.
Shape suffixes: R rows, P entries of the list, L keys of all of them, H query heads, K key heads, G = H / K, D head
size.
"""

import numpy as np
import torch
from torch import Tensor

from . import PagedRows, ScoreOptions, fixed_pages
from .scores import attend


class TorchFixedPlan:
    """See `FixedPlan`."""

    @torch.inference_mode(False)  # tensors that inference mode made could not be written outside of it
    def __init__(self, num_rows: int, max_pages: int, page_len: int, device: torch.device) -> None:
        self.num_rows, self.max_pages = num_rows, max_pages
        self._page_len = page_len
        self._page_P, self._row_P, self._place_P = torch.zeros(3, max_pages, dtype=torch.int64, device=device)
        self._context_R = torch.ones(num_rows, dtype=torch.int64, device=device)

    def set(self, rows: PagedRows) -> None:
        num_pages_R = fixed_pages(self, rows, self._page_len)
        num_pages = int(num_pages_R.sum())
        row_P = np.repeat(np.arange(self.num_rows), num_pages_R)
        place_P = np.arange(num_pages) - np.repeat(np.cumsum(num_pages_R) - num_pages_R, num_pages_R)
        page_P = rows.page_table[row_P, place_P]
        # What is left over belongs to no row; it reads a page that has been written to.
        for target, values, rest in (
            (self._page_P, page_P, int(page_P[0])),
            (self._row_P, row_P, -1),
            (self._place_P, place_P, 0),
        ):
            target[:num_pages] = torch.from_numpy(values.astype(np.int64))
            target[num_pages:] = rest
        self._context_R.copy_(torch.from_numpy(np.asarray(rows.context_lens, dtype=np.int64)))

    def attend(self, pages: Tensor, q_RHD: Tensor, options: ScoreOptions, sinks_H: Tensor | None) -> Tensor:
        """[R, H, D]; pages are [page, 2, page_len, kv_head, head_dim]."""
        num_kv, head_dim = pages.shape[3:]
        kv_2KLD = pages.index_select(0, self._page_P).transpose(0, 1).reshape(2, -1, num_kv, head_dim).transpose(1, 2)
        q_KGRD = q_RHD.unflatten(1, (num_kv, -1)).permute(1, 2, 0, 3)
        k_KGLD, v_KGLD = kv_2KLD.unsqueeze(2).expand(-1, -1, q_KGRD.shape[1], -1, -1).unbind(0)
        sinks = None if sinks_H is None else sinks_H.view(num_kv, -1, 1, 1)
        out_KGRD = attend(q_KGRD, k_KGLD, v_KGLD, options, mask=self._mask(options.window, q_RHD), sinks=sinks)
        return out_KGRD.permute(2, 0, 1, 3).reshape(q_RHD.shape)

    def _mask(self, window: int | None, like: Tensor) -> Tensor:
        """[R, L]: 0 where the key is one that the row sees, else -inf."""
        offset = torch.arange(self._page_len, device=like.device)
        position_L = (self._place_P[:, None] * self._page_len + offset).flatten()
        row_L = self._row_P.repeat_interleave(self._page_len)
        context_R1 = self._context_R[:, None]
        is_seen_RL = (row_L == torch.arange(self.num_rows, device=like.device)[:, None]) & (position_L < context_R1)
        if window is not None:
            is_seen_RL &= position_L >= context_R1 - window
        return torch.zeros(is_seen_RL.shape, dtype=like.dtype, device=like.device).masked_fill_(
            ~is_seen_RL, float("-inf")
        )
