"""Steps that only decode, as graphs: one per number of rows, padded up to the next of a few.

A graph's inputs are written into buffers that stay where they are: of each row its token (or that the device knows it,
from the step before), its position, and the place of its key and value. Padding rows write to a page of their own.
Shape suffixes: R rows of a step, B rows of a graph, V vocabulary.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import CannotFit
from ..core.graphs import Graph, GraphPool
from ..core.staging import to_device
from ..core.step import Shortfall
from ..kernels.attention import FixedPlan, Ints, PagedAttention, PagedRows
from .attend import PagedAttend
from .compose import Decodes
from .kv_cache import KvCache, KvMemory
from .rows import RowTable

log = logging.getLogger(__name__)

ROWS = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""Rows of the graphs: few, and padding adds a quarter at most from 4 rows on."""


@dataclass(slots=True)
class _Captured:
    """One graph with what it reads and writes.

    Fields:
        ints_5B: tokens, positions, pages, offsets, request rows.
        logits_BV, tokens_B: what the last replay gave.
    """

    ints_5B: Tensor
    plan: FixedPlan
    logits_BV: Tensor
    tokens_B: Tensor
    graph: Graph | None = None

    def takes(self, decodes: Decodes, page_len: int) -> bool:
        """Whether the plan has room for the rows' pages: where rows share pages, there may be more than the arena's."""
        padding = self.plan.num_rows - len(decodes.rows_R)
        return int((decodes.positions_R // page_len + 1).sum()) + padding <= self.plan.max_pages


class DecodeGraphs:
    """The decode graphs of one model.

    Args:
        forward: (token ids, positions, attend) -> float32 logits [B, V].
        greedy: logits -> the likeliest tokens.
        attend: (attention plan, pages, offsets) -> what the model's layers attend through.
        pool: scratch memory, shared with all graphs of the lane.
        max_len: tokens of the longest request.

    Fields:
        why_not: why no graph is used: capturing one has failed. None if graphs are.
    """

    def __init__(
        self,
        *,
        forward: Callable[[Tensor, Tensor, PagedAttend], Tensor],
        greedy: Callable[[Tensor], Tensor],
        attend: Callable[[Any, Tensor, Tensor], PagedAttend],
        attention: PagedAttention,
        kv: KvCache,
        table: RowTable,
        pool: GraphPool,
        max_len: int,
        vocab_size: int,
        sizes: Sequence[int] = ROWS,
    ) -> None:
        self.sizes = tuple(sizes)
        self._forward = forward
        self._greedy = greedy
        self._attend = attend
        self._attention = attention
        self._kv = kv
        self._table = table
        self._pool = pool
        self._max_pages = kv.pages_for(max_len)
        self._device = table.newest.device
        self._padding = KvMemory(f"graphs:{kv.page_class.name}", None)
        self._padding_row = table.take()
        self._captured: dict[int, _Captured] = {}
        self.why_not: str | None = None
        self._logits_BV = torch.empty((max(self.sizes), vocab_size), dtype=torch.float32, device=self._device)

    @property
    def num_graphs(self) -> int:
        return len(self._captured)

    def serves(self, decodes: Decodes) -> bool:
        """Whether there is a graph for such rows; it is captured now if it was not."""
        num_rows = len(decodes.rows_R)
        captured = self._of(num_rows) if 0 < num_rows <= self.sizes[-1] else None
        return captured is not None and captured.takes(decodes, self._kv.page_len)

    def build(self, num_rows: int) -> None:
        """Captures the graph for so many rows ahead of need, if graphs are used; compiles what it needs.

        Raises:
            CannotFit: there is no page for padding rows.
        """
        self._of(num_rows)

    def moved(self, moves: Mapping[int, int]) -> None:
        """Pages have moved."""
        self._padding.pages = [moves.get(page, page) for page in self._padding.pages]

    def run(self, decodes: Decodes) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [R, V], likeliest tokens [R], and request rows [R]. Good until the next run. Only what it `serves`."""
        num_rows = len(decodes.rows_R)
        captured = self._of(num_rows)
        assert captured is not None, self.why_not
        self._set(captured, decodes)
        assert captured.graph is not None
        captured.graph()
        return captured.logits_BV[:num_rows], captured.tokens_B[:num_rows], captured.ints_5B[4, :num_rows]

    def _of(self, num_rows: int) -> _Captured | None:
        """The smallest graph for so many rows; None where graphs are not used."""
        if self.why_not is not None:
            return None
        size = next(size for size in self.sizes if size >= num_rows)
        captured = self._captured.get(size)
        if captured is None:
            captured = self._prepare(size)
            if not self._capture(captured):
                return None
            self._captured[size] = captured
        return captured

    def _prepare(self, size: int) -> _Captured:
        """What a graph reads and writes, for padding rows at first."""
        most = min(size * self._max_pages, self._kv.page_class.num_pages_possible + size)
        plan = self._attention.fixed_plan(size, most)
        assert plan is not None, "The attention backend has no fixed plans."
        self._take_padding_page()
        ints_5B = torch.zeros((5, size), dtype=torch.int64, device=self._device)
        tokens_B = torch.zeros(size, dtype=torch.int64, device=self._device)
        captured = _Captured(ints_5B, plan, self._logits_BV[:size], tokens_B)
        nobody = np.zeros(0, dtype=np.int64)
        self._set(captured, Decodes(nobody, nobody, nobody))
        return captured

    def _capture(self, captured: _Captured) -> bool:
        """Whether it worked; if not, graphs are not used from now on, and steps run as they come."""

        def step() -> None:
            self._step(captured)

        step()  # compiles kernels, and plans what must not be planned during a capture
        try:
            captured.graph = self._pool.capture(step)
        except Exception as error:
            self.why_not = f"{type(error).__name__}: {error}"
            log.exception("Decode graphs: off, decodes run as they come (%s)", self.why_not)
            return False
        return True

    def _take_padding_page(self) -> None:
        if not self._padding.pages:
            missing = self._kv.grow(self._padding, 1)
            if isinstance(missing, Shortfall):
                what = f"Beside what is in use already, the padding of decode graphs of '{self._kv.page_class.name}'"
                raise CannotFit(what, missing.nbytes, 0, "Raise the engine's 'memory_bytes'.")
            self._kv.clear(self._padding.pages)

    def _step(self, captured: _Captured) -> None:
        known_B, positions_B, pages_B, offsets_B, rows_B = captured.ints_5B.unbind()
        newest_B = self._table.newest.index_select(0, rows_B)
        ids_B = torch.where(known_B < 0, newest_B, known_B)
        logits_BV = self._forward(ids_B, positions_B, self._attend(captured.plan, pages_B, offsets_B))
        captured.logits_BV.copy_(logits_BV)
        captured.tokens_B.copy_(self._greedy(captured.logits_BV))

    def _set(self, captured: _Captured, decodes: Decodes) -> None:
        """Writes the rows of the next replay, behind the one before."""
        size, num_rows = captured.ints_5B.shape[1], len(decodes.rows_R)
        padding = size - num_rows
        (padding_page,) = self._padding.pages
        pages_R, offsets_R = decodes.places(self._table, self._kv.page_len)
        columns = (decodes.known_R, decodes.positions_R, pages_R, offsets_R, decodes.rows_R)
        fillers = (0, 0, padding_page, 0, self._padding_row)
        ints: Ints = np.stack([_padded(c, padding, f) for c, f in zip(columns, fillers, strict=True)])
        captured.ints_5B.copy_(to_device(torch.from_numpy(ints), self._device))
        num_pages = self._kv.pages_for(decodes.max_context)
        table: Ints = np.full((size, num_pages), padding_page, dtype=np.int64)
        table[:num_rows] = self._table.pages[decodes.rows_R, :num_pages]
        context_B = _padded(decodes.positions_R + 1, padding, 1)
        captured.plan.set(PagedRows(size, [1] * size, context_B, table))


def _padded(ints: Ints, count: int, filler: int) -> Ints:
    return np.concatenate((ints, np.full(count, filler, dtype=np.int64)))
