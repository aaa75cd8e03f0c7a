"""Blocks of open batches as graphs, one a block: a block then costs the host one launch instead of some forty.

A graph reads and writes where it was captured. So the carry of a layout (equal facts, equal tensors) lies in a slot, a
lease of the arena that stays while it is used and while nobody needs the bytes more; what a block puts into the carry
its graph moves into the slot. Graphs of all layouts share one scratch pool, for what they keep lies in slots. One batch
at a time has a layout's slot; a second one runs eagerly over a lease of its own.

A block is captured on the third run of its layout on a share of the SMs: by then all that is made on first use is
there. On a CPU a graph is the function itself, so that slots can be tested. Knows nothing of what blocks compute.
"""

import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from hemiola.core.graphs import Graph, GraphPool
from hemiola.core.memory import Arena
from hemiola.core.step import Shortfall, Work

from .carry_store import CarryStore
from .stage import Block, Carry

log = logging.getLogger(__name__)

MAX_SLOTS = 8
MAX_KNOWN = 64
"""Layouts whose runs are counted."""

Place = tuple[float, int]
"""Share of the SMs, and index of the block."""


@dataclass(slots=True, eq=False)
class Captured:
    """A block's graph, and the carry's tensors behind it: views of the slot."""

    graph: Graph
    after: dict[str, Tensor]


@dataclass(slots=True, eq=False)
class Layout:
    """Fields:
    key: what its lease is found by.
    runs: how often each block has run eagerly.
    graphs: of blocks, over this slot.
    store: the slot, once it is leased.
    is_taken: some open batch's carry lies in the slot.
    is_eager: capturing failed, so it is not tried again.
    """

    key: Hashable
    runs: Counter[Place] = field(default_factory=Counter)
    graphs: dict[Place, Captured] = field(default_factory=dict)
    store: CarryStore | None = None
    is_taken: bool = False
    is_eager: bool = False

    def most_runs(self, sm_share: float) -> int:
        """How often some block has run on that share."""
        return max((count for (share, _), count in self.runs.items() if share == sm_share), default=0)


class BlockGraphs:
    """Graphs and slots of one model.

    Args:
        model: its name, under which the ledger has the slots.
        pool: scratch memory, shared with all graphs of the lane.

    Fields:
        captured_on_run: which run of a block on a share of the SMs captures it.
    """

    captured_on_run = 3

    def __init__(self, model: str, arena: Arena, pool: GraphPool) -> None:
        self.arena = arena
        self._model = model
        self._pool = pool
        self._layouts: dict[Hashable, Layout] = {}  # the last used one comes last
        self._is_short = False

    @property
    def num_slots(self) -> int:
        return len(self._with_slots())

    @property
    def num_graphs(self) -> int:
        return sum(len(layout.graphs) for layout in self._layouts.values())

    @property
    def nbytes(self) -> int:
        """Of the slots."""
        return sum(layout.store.lease.nbytes for layout in self._with_slots() if layout.store is not None)

    def begin(
        self, stage: str, blocks: Sequence[Block], carry: Carry, sizes: Mapping[str, int], saves: Work, sm_share: float
    ) -> "BatchGraphs | None":
        """For a batch that was just opened. None where nothing can be captured.

        Args:
            sizes: of the carry's slots (`carry_store.slot_sizes`).
            saves: the work of the step: making the graphs anew takes the host about as long as one.
        """
        if not any(block.is_capturable for block in blocks):
            return None
        self._forget_evicted()
        key = (stage, carry.facts, tuple(sizes.items()), tuple(map(_signature, carry.tensors.items())))
        layout = self._look_up(key)
        if layout.is_eager or layout.is_taken:
            return None
        if layout.store is not None:
            layout.store.lease.lock()
        elif layout.most_runs(sm_share) >= self.captured_on_run - 1:
            self._lease_slot(layout, sizes, saves, (self._model, stage))
        layout.is_taken = layout.store is not None
        return BatchGraphs(self, layout)

    def end(self, layout: Layout) -> None:
        """The batch that had the slot is over."""
        assert layout.store is not None, "It has no slot."
        layout.is_taken = False
        layout.store.lease.unlock()

    def capture(self, layout: Layout, block: Block, carry: Carry) -> Captured | None:
        """The graph of a block over a carry that lies in the slot; None, with a warning, if it cannot be captured."""
        assert layout.store is not None, "It has no slot."
        store, before, after = layout.store, dict(carry.tensors), dict[str, Tensor]()

        def run() -> None:
            inside = Carry(dict(before), carry.facts)
            block.run(inside)
            store.keep(inside)
            after.clear()
            after.update(inside.tensors)

        try:
            return Captured(self._pool.capture(run), after)
        except Exception:
            log.warning("A block of '%s' could not be captured; its layout runs eagerly.", self._model, exc_info=True)
            layout.is_eager = True
            return None

    # Slots

    def _look_up(self, key: Hashable) -> Layout:
        layout = self._layouts.pop(key, None) or Layout(("graph slot", self._model, key))
        self._layouts[key] = layout
        if len(self._layouts) > MAX_KNOWN:
            oldest = next(key for key, each in self._layouts.items() if each.store is None)
            del self._layouts[oldest]
        return layout

    def _forget_evicted(self) -> None:
        for layout in self._layouts.values():
            if layout.store is not None and layout.store.lease.is_released:
                self._forget_slot(layout)

    def _lease_slot(self, layout: Layout, sizes: Mapping[str, int], saves: Work, cost_key: Hashable) -> None:
        if self.num_slots >= MAX_SLOTS:
            self._give_up_slot()
        lease = self.arena.share(layout.key, sum(sizes.values()), saves, cost_key, owner=f"graph:{self._model}")
        if isinstance(lease, Shortfall):
            layout.runs.clear()  # not on every step
            if not self._is_short:
                self._is_short = True
                log.warning(
                    "'%s' runs without graphs where the arena has no %.1f MiB for a carry.",
                    self._model,
                    sum(sizes.values()) / 2**20,
                )
            return
        layout.store = CarryStore(lease, sizes)

    def _give_up_slot(self) -> None:
        """The least recently used one that nobody has."""
        layout = next((each for each in self._with_slots() if not each.is_taken), None)
        if layout is not None and layout.store is not None:
            layout.store.lease.release()
            self._forget_slot(layout)

    def _forget_slot(self, layout: Layout) -> None:
        """Drops what was captured over it, when no step that replays it is in flight."""
        for captured in layout.graphs.values():
            self.arena.clock.retire(captured.graph.drop)
        layout.graphs.clear()
        layout.runs.clear()
        layout.store = None

    def _with_slots(self) -> list[Layout]:
        """The least recently used one first."""
        return [layout for layout in self._layouts.values() if layout.store is not None]


class BatchGraphs:
    """The graphs of one open batch.

    Fields:
        store: the slot in which its carry lies; None while its layout has none.
    """

    def __init__(self, graphs: BlockGraphs, layout: Layout) -> None:
        self._graphs = graphs
        self._layout = layout
        self.store = layout.store

    def run(self, index: int, block: Block, carry: Carry, sm_share: float) -> None:
        """Runs a block: by its graph, if there is one or it is time to capture it."""
        place = (sm_share, index)
        captured = self._graph_of(place, block, carry)
        if captured is None:
            self._layout.runs[place] += 1
            block.run(carry)
            return
        captured.graph()
        carry.tensors = dict(captured.after)

    def end(self) -> None:
        """The batch is over: another one may have the slot."""
        if self.store is not None:
            self.store = None
            self._graphs.end(self._layout)

    def _graph_of(self, place: Place, block: Block, carry: Carry) -> Captured | None:
        layout = self._layout
        if self.store is None or layout.is_eager or not block.is_capturable:
            return None
        captured = layout.graphs.get(place)
        if captured is None and layout.runs[place] < self._graphs.captured_on_run - 1:
            return None
        self.store.keep(carry)
        if captured is None:
            captured = self._graphs.capture(layout, block, carry)
            if captured is not None:
                layout.graphs[place] = captured
        return captured


def _signature(named: tuple[str, Tensor]) -> Hashable:
    name, tensor = named
    return name, tuple(tensor.shape), tensor.stride(), tensor.dtype
