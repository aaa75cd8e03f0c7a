"""Work that is enqueued again and again in one go: CUDA graphs; on a CPU the function itself.

A captured function must do the same whenever it is called: it reads and writes tensors that stay where they are, and
never looks at what is in them. See https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from .caches import Caches

Keeping = Callable[[], AbstractContextManager[list[Any]]]


class GraphPool:
    """Scratch memory that graphs share which never run at the same time: those of one lane.

    Args:
        keeping: a context that collects what kernels need to outlive the graph (see `kernels.captured`).

    Fields:
        num_graphs: captured so far and not dropped.
    """

    def __init__(self, device: torch.device, keeping: Keeping) -> None:
        self.device = device
        self.num_graphs = 0
        self._keeping = keeping
        self._caches = Caches(device)
        self._failed: list[Any] = []
        self._handle: Any = None if device.type == "cpu" else torch.cuda.graph_pool_handle()

    def capture(self, function: Callable[[], None]) -> "Graph":
        """Captures what `function` enqueues on the current stream; it has run once before, and does not run now.

        Raises:
            Exception: whatever `function` raised, or RuntimeError when it enqueued what cannot be captured.
        """
        if self.device.type == "cpu":
            self.num_graphs += 1
            return Graph(self, function, [])
        self._caches.make_room()  # while it captures, torch's allocator cannot
        graph: Any = torch.cuda.CUDAGraph()
        with self._keeping() as kept, _uncollected(), _own_workspaces():
            graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")
            try:
                function()
                graph.capture_end()
            except BaseException as error:
                self._abandon(graph, error)
                raise
        self.num_graphs += 1
        return Graph(self, graph.replay, [graph, *kept])

    def _abandon(self, graph: Any, error: BaseException) -> None:
        """Ends a capture that has failed. Ending it may fail, too, which must not hide why.

        torch then takes the capture for unfinished: its allocator records on to the pool, and its default random
        generator counts for the graph. So there is another pool, and another state of the generator.
        """
        try:
            graph.capture_end()
            return  # as after want of memory: torch has closed the pool, which serves on
        except RuntimeError as ending:
            error.add_note(f"Ending the capture: {ending}")
        self._failed.append(graph)
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        try:
            torch._C._cuda_endAllocateToPool(index, self._handle)
        except RuntimeError as ending:
            error.add_note(f"Ending the capture: {ending}")
        self._handle = torch.cuda.graph_pool_handle()
        generator = torch.cuda.default_generators[index]
        fresh = torch.Generator(torch.device("cuda", index)).manual_seed(generator.initial_seed())
        generator.graphsafe_set_state(fresh.graphsafe_get_state())


class Graph:
    """A captured function. Calling it enqueues the work on the current stream."""

    __slots__ = ("_kept", "_pool", "_replay")

    def __init__(self, pool: GraphPool, replay: Callable[[], None], kept: list[Any]) -> None:
        self._pool = pool
        self._replay = replay
        self._kept = kept

    def __call__(self) -> None:
        self._replay()

    def drop(self) -> None:
        """Forgets it. No replay may be in flight."""
        self._pool.num_graphs -= 1
        self._kept.clear()
        self._replay = _dropped


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """What cuBLAS works in is the pool's inside: scratch memory that lives as long as any of the pool's graphs.

    Else graphs would take the one that torch keeps for each stream. Since torch 2.12 it goes with the first graph of
    that stream that is dropped, and all others write to memory that is somebody else's by then
    (https://github.com/pytorch/pytorch/issues/193402).
    """
    clear: Callable[[], None] = torch._C._cuda_clearCublasWorkspaces
    clear()
    try:
        yield
    finally:
        clear()  # nor may what runs outside of graphs work in theirs


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is collected inside: what it frees might record events on the stream, which would be captured."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _dropped() -> None:
    raise RuntimeError("The graph was dropped.")
