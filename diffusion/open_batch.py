"""A step that is under way: closed from its first to its last group of blocks, with its carry in leased memory between.

Rows whose state has ended meanwhile are dead: they are computed to the end, and nothing is done with what they give.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hemiola.core.memory.lease import Lease
from hemiola.core.step import Slot, Work, blocks_work

from .block_graphs import BatchGraphs, BlockGraphs
from .carry_store import CarryStore, slot_sizes
from .conditions import ConditionKey
from .job import Steps
from .stage import Block, Carry, Stage
from .state import DiffusionState


@dataclass(slots=True, eq=False)
class OpenBatch:
    """Fields:
    stage, blocks: what is run.
    states: those alive, in policy order.
    steps: of each state that it began with.
    row_works: of each row, the work of each block.
    make_rows: gives the stage's rows, when the step begins.
    leases: conditions that an encode step is to write.
    store: leased to keep the carry between groups; None when the step is launched in one and no block asks for it, or
        when the carry is in a slot.
    graphs: of the model's blocks, if any are captured.
    next_block: the first that was not launched yet.
    seconds: that the groups collected so far took on the device.
    """

    stage: Stage[Any]
    blocks: Sequence[Block]
    states: list[DiffusionState]
    steps: Mapping[DiffusionState, Steps]
    row_works: Sequence[Sequence[Work]]
    make_rows: Callable[[], Sequence[Any]]
    leases: dict[ConditionKey, Lease] = field(default_factory=dict)
    store: CarryStore | None = None
    graphs: BlockGraphs | None = None
    next_block: int = 0
    seconds: float = 0.0
    _rows: Sequence[Any] = ()
    _carry: Carry | None = None
    _captured: BatchGraphs | None = None

    @property
    def last_block(self) -> int:
        return len(self.blocks) - 1

    def is_stored(self, last: int) -> bool:
        """Whether the carry needs a place in leased memory if the first group ends at block `last`."""
        return last < self.last_block or any(block.is_kept for block in self.blocks)

    def work(self, first: int, last: int) -> Work:
        return blocks_work([works[first : last + 1] for works in self.row_works])

    def run(self, first: int, last: int, slot: Slot) -> Sequence[Tensor] | None:
        """Computes these blocks. After the last one, the result of each row; before, None."""
        if self._carry is None:
            self._carry = self._open(slot)
        for index in range(first, last + 1):
            if self._captured is None:
                self.blocks[index].run(self._carry)
            else:
                self._captured.run(index, self.blocks[index], self._carry, slot.sm_share)
            if self.blocks[index].is_kept and self.store is not None:
                self.store.keep(self._carry)
                self.store.lease.written(slot)
        if last == self.last_block:
            return self.stage.close(self._carry, self._rows)
        store = self.store if self._captured is None else self._captured.store or self.store
        assert store is not None, "a step that is cut has leased room for its carry"
        store.keep(self._carry)
        store.lease.written(slot)
        return None

    def _open(self, slot: Slot) -> Carry:
        """The carry of the first block. Where graphs have a slot for it, the room that was leased is given back."""
        self._rows = self.make_rows()
        carry = self.stage.open(self._rows)
        if self.graphs is not None:
            saves = self.work(0, self.last_block)
            self._captured = self.graphs.begin(
                self.stage.name, self.blocks, carry, self.carry_sizes, saves, slot.sm_share
            )
            if self.store is not None and self._captured is not None and self._captured.store is not None:
                self.graphs.arena.put_back(self.store.lease)
                self.store = None
        return carry

    @property
    def carry_sizes(self) -> Mapping[str, int]:
        """Bytes of each tensor's place in a store."""
        return slot_sizes(steps.carried for steps in self.steps.values())

    def drop(self) -> None:
        """Gives the carry back. The batch is over."""
        self._carry = None
        if self._captured is not None:
            self._captured.end()
            self._captured = None
        if self.store is not None:
            self.store.lease.release()
            self.store = None
