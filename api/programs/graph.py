"""The nodes of a running program: what was asked where, what it waits for, and what became of it. Knows no engine."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hemiola.core.errors import HemiolaError, InvalidRequest, RequestAborted
from hemiola.core.events import Usage

from ..results import Scores

Kind = Literal["gen", "select", "image", "video"]
_INSIDE = (str(Path(__file__).parent), contextlib.__file__)  # `with s.user():` goes through the latter


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def calling_place() -> Place:
    """The innermost line of the program: outside this folder and what it calls through."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_INSIDE) and frame.f_back is not None:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a node gave.

    Fields:
        value: what its variable is.
        text: what it adds to the turn that it is in; None where several answers are still to be chosen from.
        raw: the same with reasoning as it was generated.
        before: messages between the turn before and this one: calls of tools and what they gave.
        scores: of a select's choices.
    """

    value: Any
    text: str | None = ""
    raw: str = ""
    reasoning: str | None = None
    before: tuple[Mapping[str, Any], ...] = ()
    scores: Scores | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ValueOf:
    """Reads a node's value, once it has ended well."""

    node: "Node"

    def __call__(self) -> Any:
        return self.node.result.result().value


class NodeFailed(HemiolaError):
    """A node gave nothing: the message names it, its line and its requests. `__cause__` is why.

    Fields:
        name: of the variable.
        place: the program's line.
        request_ids: of the engine; empty where it was never asked.
    """

    def __init__(self, node: "Node", cause: BaseException) -> None:
        why = str(cause) if isinstance(cause, HemiolaError) else f"{type(cause).__name__}: {cause}"
        super().__init__(f"{node.title} failed: {why}")
        self.name = node.name
        self.place = node.place
        self.request_ids = node.request_ids
        self.code = cause.code if isinstance(cause, HemiolaError) else "program_error"
        self.__cause__ = cause


@dataclass(eq=False, slots=True)
class Node:
    """One expression of a running program.

    Fields:
        idx: in order of creation.
        branch: which fork it is in: "" for the program's own state, then "0", "0.1", ...
        inputs: the nodes whose results it needs.
        loop_thread: the thread that must never wait for it, because that thread runs it.
        result: filled when it ends.
        created_s, submitted_s, first_s, ended_s: on the engine's clock; `first_s` is the first event.
        request_ids: of all attempts.
        num_calls: how often the engine was asked, or was to be asked.
        usage: of the last attempt.
        size: how much there is to do, to be compared with others of its kind: tokens, steps.
        model: as it was named.
        root: the turn that its conversation begins with; None where it has none.
    """

    idx: int
    kind: Kind
    name: str
    branch: str
    place: Place
    inputs: tuple["Node", ...]
    loop_thread: int
    created_s: float
    result: Future[Outcome] = field(default_factory=Future)
    size: float = 1.0
    model: str | None = None
    root: object = None
    submitted_s: float | None = None
    first_s: float | None = None
    ended_s: float | None = None
    request_ids: tuple[str, ...] = ()
    num_calls: int = 0
    usage: Usage | None = None

    @property
    def title(self) -> str:
        """What errors call it: the variable, the program's line, the requests if there are any."""
        asked = f", request {', '.join(self.request_ids)}" if self.request_ids else ""
        return f"'{self.name}' ({self.place}{asked})"

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None also while it has not ended."""
        return self.result.exception() if self.result.done() else None

    def wait(self) -> Outcome:
        """Waits in this thread.

        Raises:
            NodeFailed, RequestAborted: it gave nothing.
            InvalidRequest: this thread runs the node, and would wait for itself.
        """
        if not self.result.done() and threading.get_ident() == self.loop_thread:
            text = (
                f"'{self.name}' ({self.place}) is not there yet: in a coroutine write `await s['{self.name}']` first."
            )
            raise InvalidRequest(self.name, text)
        error = self.result.exception()
        if error is not None:
            raise error.with_traceback(None)  # else it would grow by the lines of every reader
        return self.result.result()

    async def arrived(self) -> Outcome:
        """As `wait`, for coroutines; being cancelled leaves the node alone."""
        waiting = asyncio.wrap_future(self.result)
        waiting.add_done_callback(_note_error)
        return await asyncio.shield(waiting)


def _note_error(future: "asyncio.Future[Outcome]") -> None:
    """Who waited may be gone: then nobody else looks at the error, and asyncio would complain of that."""
    if not future.cancelled():
        future.exception()


def timed_out(nodes: Iterable[Node], timeout_s: float | None) -> TimeoutError:
    """The error of a time limit: names the nodes that had not ended by themselves."""
    cut = [node.title for node in nodes if not node.result.done() or isinstance(node.error, RequestAborted)]
    return TimeoutError(f"Not done after {timeout_s} s, and cancelled: {', '.join(cut) or 'the function itself'}.")


def distinct(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(nodes))
