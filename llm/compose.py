"""From the rows of a step to the flat tensors of one forward: decodes first, then prefill chunks.

All metadata is computed on the host with a few vector operations, whatever the number of rows.
Shape suffixes: T tokens, R rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.staging import to_device
from ..kernels.attention import Ints, PagedRows
from .rows import RowTable
from .state import LanguageState


class Chunk(NamedTuple):
    """The next `num_new` tokens of a state.

    Behind the last `num_told` of them the answer has a token: one behind the prompt's end, and more where tokens are
    forced, since these are known before they are told.
    """

    state: LanguageState
    num_new: int
    num_told: int


class StepInputs(NamedTuple):
    """What a forward takes.

    Fields:
        rows: for the attention backend.
        token_ids_T, positions_T, page_idx_T, offset_T: of all tokens, on the device.
        sampled_R: index into T of the tokens behind which one is sampled; None when that is all of them.
        sampled_rows_R: request rows of those, on the device; nobody's where another token of the row follows.
    """

    rows: PagedRows
    token_ids_T: Tensor
    positions_T: Tensor
    page_idx_T: Tensor
    offset_T: Tensor
    sampled_R: Tensor | None
    sampled_rows_R: Tensor


class Decodes(NamedTuple):
    """Rows with one token to compute, as the host knows them, each [R].

    Fields:
        known_R: the token, or -1 where only the device knows it: the newest of the row.
        positions_R: of that token.
        rows_R: request rows.
    """

    known_R: Ints
    positions_R: Ints
    rows_R: Ints

    @classmethod
    def of(cls, states: Sequence[LanguageState]) -> "Decodes":
        known = [s.token_ids[n] if (n := s.num_computed) < len(s.token_ids) else -1 for s in states]
        ints = (known, [state.num_computed for state in states], [state.row for state in states])
        return cls(*(np.array(column, dtype=np.int64) for column in ints))

    @property
    def max_context(self) -> int:
        """Keys of the longest row."""
        return int(self.positions_R.max(initial=0)) + 1

    def places(self, table: RowTable, page_len: int) -> tuple[Ints, Ints]:
        """Page and offset of each token's key and value."""
        number_R, offset_R = np.divmod(self.positions_R, page_len)
        return table.pages[self.rows_R, number_R], offset_R


def compose(
    decodes: Sequence[LanguageState], chunks: Sequence[Chunk], table: RowTable, page_len: int, device: torch.device
) -> StepInputs:
    """The inputs of a step. Decodes should come in order of length, so that they fall into few groups.

    Args:
        decodes: states with one token to compute, behind which one is sampled.
        chunks: longer (or unsampled) pieces of prompts.
    """
    num_decodes, known = len(decodes), Decodes.of(decodes)
    starts, rows = known.positions_R.tolist(), known.rows_R.tolist()
    lens = [1] * num_decodes
    for state, num_new, _ in chunks:
        starts.append(state.num_computed)
        rows.append(state.row)
        lens.append(num_new)
    row_R, start_R, len_R = (np.array(ints, dtype=np.int64) for ints in (rows, starts, lens))
    context_R = start_R + len_R
    if chunks:
        first_R = np.cumsum(len_R) - len_R
        position_T = np.arange(int(context_R[-1] - start_R[-1] + first_R[-1])) + np.repeat(start_R - first_R, len_R)
        row_T = np.repeat(row_R, len_R)
    else:
        position_T, row_T = start_R, row_R
    page_T, offset_T = np.divmod(position_T, page_len)
    num_pages = int(-(-context_R.max() // page_len))
    sampled = [*range(num_decodes)]
    if chunks:
        last_R = np.cumsum(len_R) - 1
        for last, chunk in zip(last_R[num_decodes:].tolist(), chunks, strict=True):
            sampled += range(last + 1 - chunk.num_told, last + 1)
    sampled_rows = rows[:num_decodes]
    for chunk in chunks:
        sampled_rows += ([table.nobody] * chunk.num_told)[1:] + [chunk.state.row] * (chunk.num_told > 0)
    return StepInputs(
        PagedRows(num_decodes, lens, context_R, table.pages[row_R, :num_pages]),
        _token_ids(known, chunks, table, device),
        _to(position_T, device),
        _to(table.pages[row_T, page_T], device),
        _to(offset_T, device),
        _to(np.array(sampled, dtype=np.int64), device) if chunks else None,
        _to(np.array(sampled_rows, dtype=np.int64), device),
    )


def _token_ids(decodes: Decodes, chunks: Sequence[Chunk], table: RowTable, device: torch.device) -> Tensor:
    """Tokens that the host knows, and in the places of those in flight what the device sampled last for their rows."""
    ids = decodes.known_R.tolist()
    for state, num_new, _ in chunks:
        ids += state.token_ids[state.num_computed : state.num_computed + num_new]
    ids_T = _to(np.array(ids, dtype=np.int64), device)
    (in_flight_R,) = np.nonzero(decodes.known_R < 0)
    if len(in_flight_R):
        place_R, row_R = _to(np.stack((in_flight_R, decodes.rows_R[in_flight_R])), device)
        ids_T.index_copy_(0, place_R, table.newest.index_select(0, row_R))
    return ids_T


def _to(ints: Ints, device: torch.device) -> Tensor:
    return to_device(torch.from_numpy(ints), device)
