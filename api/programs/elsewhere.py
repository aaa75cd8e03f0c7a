"""Runs a program on a server as a whole: it is written down and sent once, and what comes back fills its nodes.

The run, its state and its trace are those of a program that runs here; times are when the server's news arrived.
"""

import asyncio
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from hemiola.core.errors import InvalidRequest, ModelNotFound

from ..client.errors import error_of
from ..client.programs import outcome_of
from ..client.terms import term_fields
from ..front.terms import CallTerms, engine_clock
from . import news
from .execution import ProgramEvent
from .graph import Node, NodeFailed, timed_out
from .run import Run
from .writing import Writing, WrittenState

_STEP = re.compile(r"program\.steps\[(\d+)\]")
Emit = Callable[[ProgramEvent], None]


async def run_elsewhere(
    client: Any, writing: Writing, state: WrittenState, terms: CallTerms, timeout_s: float | None, emit: Emit | None
) -> Run:
    """Runs on the client's server what was written down. Being cancelled cancels all of it there.

    Raises:
        InvalidRequest: this is no client, or the server finds a mistake.
        HemiolaError: the server cannot be reached, or could not go on.
        TimeoutError: the time limit has passed; nothing of it goes on.
    """
    if not hasattr(client, "stream_program"):
        text = f"Invalid 'remote': {type(client).__name__} is no server. Allowed: remote=True with a hemiola.Client."
        raise InvalidRequest("remote", text)
    writing.started_s = engine_clock()
    filling = _Filling(writing, emit)
    body = _body(writing, terms, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            async for said in client.stream_program(f"program-{uuid.uuid4().hex}", body):
                await filling.take(said)
    except TimeoutError as error:
        raise timed_out(writing.nodes, timeout_s) from error
    except (InvalidRequest, ModelNotFound) as error:
        error.message = _with_line(error.message, writing)
        error.args = (error.message,)
        raise
    return Run(writing, state, engine_clock() - writing.started_s)  # type: ignore[arg-type]  # stands for an Execution


def _with_line(message: str, writing: Writing) -> str:
    """A server counts steps; who wrote the program counts lines."""

    def with_line(step: re.Match[str]) -> str:
        number = int(step[1])
        return f"{step[0]} ({writing.places[number]})" if number < len(writing.places) else step[0]

    return _STEP.sub(with_line, message, count=1)


def _body(writing: Writing, terms: CallTerms, timeout_s: float | None) -> bytes:
    fields = {
        "program": writing.graph,
        "stream": True,
        "video_format": "png",
        "deadline_s": terms.deadline_s,
        "timeout_s": timeout_s,
        **term_fields(replace(terms, deadline_s=None)),
    }
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


class _Filling:
    """Nodes that are filled from what a server says."""

    def __init__(self, writing: Writing, emit: Emit | None) -> None:
        self._writing = writing
        self._emit = emit

    async def take(self, said: news.News) -> None:
        match said:
            case news.ProgramStarted(id):
                self._writing.id = id
            case news.NodeStarted(idx):
                node = self._writing.nodes[idx]
                node.submitted_s = node.submitted_s or engine_clock()
                self._tell("started", node)
            case news.NodeText(idx, text, index):
                self._tell("text", self._at_work(idx), text=text, index=index)
            case news.NodeProgress(idx, done, total, index):
                self._tell("progress", self._at_work(idx), index=index, done=done, total=total)
            case news.NodeFinished():
                await self._finish(said)
            case news.NodeFailed():
                self._fail(said)

    def _at_work(self, idx: int) -> Node:
        node = self._writing.nodes[idx]
        node.first_s = node.first_s or engine_clock()
        return node

    async def _finish(self, said: news.NodeFinished) -> None:
        node = self._at_work(said.node)
        outcome = await outcome_of(said)
        node.request_ids, node.usage, node.ended_s = said.request_ids, said.usage, engine_clock()
        node.result.set_result(outcome)
        self._tell("finished", node, value=outcome.value)

    def _fail(self, said: news.NodeFailed) -> None:
        node = self._writing.nodes[said.node]
        node.request_ids, node.ended_s = said.request_ids, engine_clock()
        because = None if said.because is None else self._writing.nodes[said.because].error
        error = NodeFailed(node, because or error_of(msgspec.to_builtins(said.error), said.status))
        node.result.set_exception(error)
        self._tell("failed", node, error=error)

    def _tell(self, kind: Any, node: Node, **more: Any) -> None:
        if self._emit is not None:
            self._emit(ProgramEvent(kind, node.name, node.branch, node=node, **more))
