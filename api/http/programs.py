"""POST /v1/programs: runs a program that is written down, at once or with events; one round trip for all its nodes.

event: program.started      it was found right
event: node.started | node.text | node.progress | node.finished | node.failed
event: program.finished     all nodes have ended
event: error                in place of that, if the program as a whole could not go on
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import HemiolaError, Overloaded

from ..programs import news
from ..programs.execution import ProgramEvent
from ..programs.replay import run_graph
from ..programs.run import Run
from .body import json_response, read_object
from .disconnect import unless_left
from .errors import HttpError, problem_of
from .fields import Fields
from .program_asks import ProgramAsk, read_program_ask
from .program_news import NewsWriter, finished, root_of
from .results import media_of
from .server import Server, server_of
from .sse import EventStream, frame

log = logging.getLogger("hemiola.http")

router = APIRouter()


@router.post("/v1/programs")
async def create(request: Request) -> Response:
    """Validates before the response begins, then streams or waits. A node that fails fails what needs it alone."""
    server = server_of(request)
    fields = Fields(await read_object(request), is_form=False)
    ask = await asyncio.to_thread(read_program_ask, fields, request)
    if (condition := server.operations.condition()) != "ready":
        raise Overloaded(f"The engine is {condition}.")
    writer = NewsWriter(ask.video_format, await _keeping(request, ask) if ask.is_by_url else None)
    if ask.is_streamed:
        running = RunningProgram(server, ask, writer)
        return EventStream(running.frames(), running.cancel, keep_alive_s=server.settings.keep_alive_s)
    return await unless_left(request, _answer(server, ask, writer))


async def _keeping(request: Request, ask: ProgramAsk) -> Any:
    """What keeps pictures, once it is clear that there is room for all."""
    shelf = media_of(request).pictures
    await asyncio.to_thread(shelf.check_room, ask.num_pictures, ask.picture_bytes_at_most)

    async def keep(files: Sequence[bytes]) -> Sequence[str]:
        set_id = await asyncio.to_thread(shelf.add, files, "png")
        return [f"{request.base_url}v1/images/{set_id}/content?variant={i}" for i in range(len(files))]

    return keep


async def _run(server: Server, ask: ProgramAsk, emit: Any = None) -> Run:
    return await run_graph(
        ask.graph,
        server.calls,
        terms=ask.terms,
        timeout_s=ask.timeout_s,
        emit=emit,
        real_name=server.real_name,
        id=ask.terms.id,
    )


async def _answer(server: Server, ask: ProgramAsk, writer: NewsWriter) -> Response:
    """All of it, at the end.

    Raises:
        HemiolaError: no node gave anything: the first failure.
        HttpError: the time limit has passed.
    """
    created = int(time.time())
    try:
        run = await _run(server, ask)
    except TimeoutError as error:
        raise HttpError(problem_of(error)) from error
    errors = [node.error for node in run.nodes if node.error is not None]
    if len(errors) == len(run.nodes):
        raise root_of(errors[0])
    end = finished(run)
    body = {
        "id": run.id,
        "object": "program",
        "created": created,
        "status": end.status,
        "nodes": [await writer.end_of(node) for node in run.nodes],
        "variables": end.variables,
        "usage": end.usage,
        "inference_time_s": end.inference_time_s,
    }
    return json_response(body)


class RunningProgram:
    """A program that is streamed: it runs in a task of its own, so that it ends whenever its reader does."""

    def __init__(self, server: Server, ask: ProgramAsk, writer: NewsWriter) -> None:
        self._server = server
        self._ask = ask
        self._writer = writer
        self._events: asyncio.Queue[ProgramEvent | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(_run(server, ask, self._events.put_nowait))
        self._task.add_done_callback(lambda _: self._events.put_nowait(None))

    def cancel(self) -> None:
        """Nobody reads any more: all that is unfinished is aborted."""
        self._task.cancel()

    async def frames(self) -> AsyncIterator[bytes]:
        """All of it, to the end."""
        try:
            yield _frame(news.ProgramStarted(self._ask.terms.id, self._ask.num_nodes))
            while (event := await self._events.get()) is not None:
                yield _frame(await self._writer.of(event))
            yield _frame(finished(await self._task))
        except (HemiolaError, TimeoutError) as error:
            yield frame(problem_of(error).envelope, "error")
        except Exception as error:
            log.exception("A stream of a program failed.")
            yield frame(problem_of(error).envelope, "error")
        finally:
            self.cancel()


def _frame(told: news.News) -> bytes:
    tag = str(told.__struct_config__.tag)
    return b"event: " + tag.encode() + b"\ndata: " + msgspec.json.encode(told) + b"\n\n"
