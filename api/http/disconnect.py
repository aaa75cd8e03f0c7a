"""What to do when a client leaves: end what was being done for it, since nobody will read the answer."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

log = logging.getLogger("hemiola.http")

T = TypeVar("T")

CLIENT_LEFT = 499


class ClientLeft(Exception):
    """The client has closed the connection; an answer would reach nobody."""


async def until_left(receive: Receive) -> None:
    """Returns when the client has left. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Does the work, unless the client leaves first; then the work is cancelled.

    Raises:
        ClientLeft: it left.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(until_left(request.receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeft
    finally:
        await _cancelled(watch)
        await _cancelled(task)


async def _cancelled(task: "asyncio.Future[Any]") -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))


def nobody() -> Response:
    """In place of an answer to a client that has left; nothing of it is sent."""
    return Response(status_code=CLIENT_LEFT)
