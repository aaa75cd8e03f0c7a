"""Runs the nodes of one program: each is asked for as soon as what it needs is there, whatever the program waits for.

To the engine they are one program: each request says what waits for it, and what others will begin with is kept until
the end. Everything here happens on one event loop, that of `run`; only `add` is called from elsewhere too, by programs
that are ordinary functions and run in a thread.
"""

import asyncio
import inspect
import threading
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hemiola.core.errors import RequestAborted
from hemiola.core.request import ProgramShare

from ..front.terms import CallTerms, engine_clock
from .expressions import Gen, Media, Select
from .forecasts import Forecasts, model_of, size_of
from .graph import Kind, Node, NodeFailed, Outcome, Place
from .threads import on_a_thread

EventKind = Literal["started", "text", "progress", "finished", "failed"]
Work = Callable[["Execution", Node], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class ProgramEvent:
    """News of one node. `text` events add to its answer `index`; `progress` events say `done` of `total` steps.

    `started` comes again where an answer that did not fit is asked for again; texts before that do not count.

    Fields:
        name, branch: whose it is: the variable and the fork ("" for the program itself).
        value: of `finished`: the variable's.
        error: of `failed`.
        node: whose it is: once it has ended, also what it gave and took.
    """

    kind: EventKind
    name: str
    branch: str = ""
    text: str = ""
    index: int = 0
    done: int = 0
    total: int = 0
    value: Any = None
    error: BaseException | None = None
    node: Node | None = field(default=None, repr=False, compare=False)


class Execution:
    """Of one run.

    Args:
        calls: where nodes run: an Engine, a ServedEngine, a client.
        terms: of all its calls; `deadline_s` counts from the beginning of the run.
        emit: takes events, on the loop; never blocks.

    Fields:
        id: of the program's run; the engine's requests are called `<id>-<node>`.
        nodes: in order of creation.
    """

    def __init__(
        self,
        calls: Any,
        terms: CallTerms,
        emit: Callable[[ProgramEvent], None] | None = None,
        id: str | None = None,
    ) -> None:
        self.calls = calls
        self.id = id or uuid.uuid4().hex[:12]
        self.nodes: list[Node] = []
        self.started_s = engine_clock()
        self._terms = terms
        self._emit = emit
        self._forecasts: Forecasts = getattr(calls, "forecasts", None) or Forecasts()
        self._behind_s: list[float] = []
        self._is_written = False  # the function has ended: no node will be added
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._over: str | None = None

    async def run(self, function: Callable[[], object]) -> None:
        """Runs the program's function, then waits for its nodes. Cancelled, or if the function raises, none goes on."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        try:
            await self._call(function)
            self._is_written = True
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._end("the program is over")
        except BaseException:
            self._end("the program was cancelled")
            await self._cancel()
            raise
        finally:
            end_program = getattr(self.calls, "end_program", None)
            if end_program is not None:
                end_program(self.id)

    def add(
        self,
        kind: Kind,
        asked: Gen | Select | Media,
        branch: str,
        place: Place,
        inputs: tuple[Node, ...],
        work: Work,
        root: object = None,
    ) -> Node:
        """A new node, which runs as soon as its inputs have ended well. From any thread; never waits.

        Args:
            root: the first turn of its conversation, which its forks have in common.

        Raises:
            RequestAborted: the program is over.
        """
        with self._lock:
            if self._over is not None:
                raise RequestAborted(f"'{asked.name}' ({place}): {self._over}.")
            node = Node(len(self.nodes), kind, asked.name, branch, place, inputs, self._thread, engine_clock())
            node.size, node.model, node.root = size_of(asked), model_of(asked), root
            self.nodes.append(node)
            if threading.get_ident() != self._thread:
                self._loop.call_soon_threadsafe(self._start, node, work)
                return node
        self._start(node, work)
        return node

    def terms(self, node: Node) -> CallTerms:
        """Of the node's next call, with an id that no call had before."""
        number = f"{self.id}-{node.idx}" + (f"-again{node.num_calls}" if node.num_calls else "")
        node.num_calls += 1
        deadline_s = self._terms.deadline_s
        if deadline_s is not None:
            deadline_s = max(self.started_s + deadline_s - engine_clock(), 0.0)
        program = ProgramShare(id=self.id, behind_s=self._behind(node), keeps_prefix=self._is_begun_with(node))
        return replace(self._terms, id=number, deadline_s=deadline_s, program=program)

    def has_others_at_work(self, node: Node) -> bool:
        """Whether other nodes were asked for and have not ended."""
        return any(n.submitted_s is not None and n.ended_s is None for n in self.nodes if n is not node)

    def tell(self, kind: EventKind, node: Node, **news: Any) -> None:
        """Tells an event of a node."""
        if self._emit is not None:
            self._emit(ProgramEvent(kind, node.name, node.branch, node=node, **news))

    # Inside

    def _behind(self, node: Node) -> float:
        """Of the nodes that were added until now."""
        if len(self._behind_s) < len(self.nodes):
            with self._lock:
                nodes = tuple(self.nodes)
            self._behind_s = self._forecasts.behind(nodes)
        return self._behind_s[node.idx]

    def _is_begun_with(self, node: Node) -> bool:
        """Whether another node will begin with what this one computes, as far as that is known."""
        return node.root is not None and (
            not self._is_written
            or any(each.root is node.root and each.submitted_s is None for each in self.nodes if each is not node)
        )

    def _start(self, node: Node, work: Work) -> None:
        if self._over is not None:
            if not node.result.done():
                self._fail(node, RequestAborted(f"{node.title}: {self._over}."))
            return
        task = asyncio.create_task(self._live(node, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, node: Node, work: Work) -> None:
        """A node's whole life. Whatever goes wrong is this node's alone, and that of those who need it."""
        try:
            for each in node.inputs:
                await each.arrived()
            self.tell("started", node)
            outcome = await work(self, node)
        except asyncio.CancelledError:
            self._fail(node, RequestAborted(f"{node.title}: {self._over or 'it was cancelled'}."))
            raise
        except Exception as error:
            self._fail(node, NodeFailed(node, error))
        else:
            node.ended_s = engine_clock()
            self._forecasts.learn(node)
            node.result.set_result(outcome)
            self.tell("finished", node, value=outcome.value)

    def _fail(self, node: Node, error: BaseException) -> None:
        node.ended_s = engine_clock()
        node.result.set_exception(error)
        self.tell("failed", node, error=error)

    async def _call(self, function: Callable[[], object]) -> None:
        if inspect.iscoroutinefunction(function):
            await function()
            return
        await on_a_thread(function, f"program-{self.id}")

    def _end(self, why: str) -> None:
        with self._lock:
            self._over = self._over or why

    async def _cancel(self) -> None:
        """Ends every node; returns when the engine has let go of them."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for node in self.nodes:
            if not node.result.done():  # added, but never started
                self._fail(node, RequestAborted(f"{node.title}: {self._over}."))
