"""Which row of a modulation belongs to which token of a batch of denoiser segments.

A modulation (scale, shift or gate) is a table [R, D] of one row for each step or request that modulates. Tokens find
their row through `rows`, int64 [n]: each entry stands for an equal number of neighbouring tokens. So [1] is one row for
all, [B] a row for each segment of x [B, L, D], and [T] a row for each token of a ragged pack [1, T, D]. Without `rows`
the table's own rows are dealt out in that way.
"""

from typing import NamedTuple

import torch
from torch import Tensor


def per_token(table_RD: Tensor, rows: Tensor | None, num_tokens: int) -> Tensor:
    """float32 [n, 1, D], to be applied to tokens viewed as [n, num_tokens / n, D]."""
    chosen = table_RD if rows is None else table_RD.index_select(0, rows)
    _tokens_per_row(len(chosen), num_tokens)
    return chosen.to(torch.float32).unsqueeze(1)


class Dealt(NamedTuple):
    """How a kernel finds a token's row: entry token // tokens_per_row, at a distance of `stride` elements."""

    tokens_per_row: int
    stride: int

    @classmethod
    def of(cls, table_RD: Tensor | None, rows: Tensor | None, num_tokens: int) -> "Dealt":
        if table_RD is None:
            return cls(1, 0)
        assert table_RD.dim() == 2 and table_RD.stride(1) == 1, "rows of a modulation must be contiguous"
        assert rows is None or (rows.dtype == torch.int64 and rows.is_contiguous()), "see the module"
        return cls(_tokens_per_row(len(table_RD if rows is None else rows), num_tokens), table_RD.stride(0))


def _tokens_per_row(num_rows: int, num_tokens: int) -> int:
    assert num_rows > 0 and num_tokens % num_rows == 0, f"{num_rows} modulation rows cannot be dealt to {num_tokens}."
    return num_tokens // num_rows
