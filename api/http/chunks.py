"""What chunks of chat and completion streams share: constant parts that are encoded once, and how a stream is sent."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Finished

from ..front.text import TextFront
from ..results import Completion
from ..stream import Stream
from .disconnect import unless_left
from .errors import problem_of
from .server import server_of
from .sse import DONE, EventStream, frame

log = logging.getLogger("hemiola.http")

# Bodies beyond this are rendered and tokenized on a thread, so that nobody else waits for it.
MAX_INLINE_BYTES = 32 << 10

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


class Chunks(Protocol):
    """Turns the events of one call into frames."""

    def opening(self) -> bytes:
        """What comes before all events."""
        ...

    def of(self, events: Sequence[Event]) -> bytes:
        """What events add; may be nothing.

        Raises:
            HemiolaError: the call failed.
        """
        ...

    def closing(self) -> bytes:
        """What comes after all events, before the end mark."""
        ...


class ChunkParts:
    """The constant parts of one stream's chunks.

    Args:
        id, object_type, created, model: the same in every chunk.
        has_usage: the last chunk tells the usage, so the others say that they do not.
    """

    def __init__(self, id: str, object_type: str, created: int, model: str, *, has_usage: bool) -> None:
        fields = {"id": id, "object": object_type, "created": created, "model": model}
        self._head = b"data: " + encode(fields)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if has_usage else b"]}\n\n"

    def before(self, index: int) -> bytes:
        """Up to where a choice's own fields begin."""
        return self._head + b'{"index":%d,' % index

    @property
    def after(self) -> bytes:
        """From where a choice's own fields end."""
        return b"}" + self._tail

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The chunk that tells it."""
        return self._head + b'],"usage":' + encode(usage) + b"}\n\n"


async def started(request: Request, begin: Callable[[], Stream[Completion]]) -> Stream[Completion]:
    """Validates, tokenizes and submits, which takes a while for long prompts."""
    if len(await request.body()) <= MAX_INLINE_BYTES:
        return begin()
    return await asyncio.to_thread(begin)


async def streamed(request: Request, stream: Stream[Completion], chunks: Chunks) -> Response:
    """The response that shows a stream. What fails before anything was shown fails with its own status.

    Raises:
        HemiolaError: it has failed.
        ClientLeft: nobody waits for it.
    """
    settings = server_of(request).settings
    try:
        await unless_left(request, _first_event(stream, settings.first_event_s))
    except BaseException:
        stream.cancel()
        raise
    if (failure := stream.failure) is not None:
        stream.cancel()
        raise failure
    return EventStream(_frames(stream, chunks), stream.cancel, keep_alive_s=settings.keep_alive_s)


async def finished(request: Request, stream: Stream[Completion]) -> Completion:
    """The whole answer.

    Raises:
        HemiolaError: it failed.
        ClientLeft: nobody waits for it any more; it is aborted.
    """
    return await unless_left(request, stream.aresult())


async def _first_event(stream: Stream[Completion], timeout_s: float) -> None:
    try:
        await asyncio.wait_for(stream.news(), timeout_s)
    except TimeoutError:
        log.debug("Nothing came of a stream in %.1f s; it is begun all the same.", timeout_s)


async def _frames(stream: Stream[Completion], chunks: Chunks) -> AsyncIterator[bytes]:
    """All frames, and the end mark. Whatever goes wrong is told in a frame: a stream that just ends looks complete."""
    try:
        yield chunks.opening()
        async for events in stream.batches():
            if frames := chunks.of(events):
                yield frames
        yield chunks.closing() + DONE
    except Exception as error:
        stream.cancel()
        if not isinstance(error, HemiolaError):
            log.exception("A stream failed.")
        yield frame(problem_of(error).envelope) + DONE


def shown_stop(front: TextFront, finished: Finished) -> str | int | None:
    """What ended the answer, if the caller had asked for that; the end of a turn is no news."""
    return None if finished.stop_reason in front.end_ids else finished.stop_reason
