"""Server-sent events: a response of frames, which ends the work behind them when the client leaves.

Nothing here knows what the frames say; they come ready made, so that a token costs one `send`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .disconnect import until_left

log = logging.getLogger("hemiola.http")

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_encoder = msgspec.json.Encoder()


def frame(value: Any, event: str | None = None) -> bytes:
    """One event with a JSON value for data."""
    data = b"data: " + _encoder.encode(value) + b"\n\n"
    return data if event is None else b"event: " + event.encode() + b"\n" + data


class EventStream(Response):
    """Sends the frames as they come.

    Args:
        frames: each one or several whole frames.
        on_left: called once if the client leaves before the end.
        keep_alive_s: a comment is sent whenever nothing was for so long.
    """

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], on_left: Callable[[], None], *, keep_alive_s: float = 15.0
    ) -> None:
        super().__init__()
        self._frames = frames
        self._on_left = on_left
        self._keep_alive_s = keep_alive_s
        self._num_sent = 0
        self._is_sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        sender = asyncio.ensure_future(self._send_all(send))
        watch = asyncio.ensure_future(until_left(receive))
        try:
            await self._wait(sender, watch, send)
        finally:
            watch.cancel()
            if not sender.done():
                scope["state"]["has_left"] = True
                self._on_left()
                sender.cancel()
            await asyncio.wait((sender, watch))
        if not sender.cancelled():
            sender.result()

    async def _wait(self, sender: "asyncio.Future[None]", watch: "asyncio.Future[None]", send: Send) -> None:
        """Until all is sent or the client has left."""
        while not (sender.done() or watch.done()):
            num_sent = self._num_sent
            await asyncio.wait((sender, watch), timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED)
            if num_sent == self._num_sent and not (self._is_sending or sender.done() or watch.done()):
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def _send_all(self, send: Send) -> None:
        async for frames in self._frames:
            self._is_sending = True
            await send({"type": "http.response.body", "body": frames, "more_body": True})
            self._is_sending = False
            self._num_sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})
