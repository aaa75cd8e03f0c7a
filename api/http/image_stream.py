"""Pictures as they are made: previews, progress and results as server-sent events.

: progress {"index":0,"done":5,"total":16}          a comment, which clients that know it not skip
event: image_generation.partial_image               a preview, where the model has any and they were asked for
event: image_generation.completed                   one per picture, with `index` and `seed`
event: error                                        in place of what is still missing
"""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Failed, Finished, Image, Pixels, Preview, Progress

from ..jobs.encode import encode_picture
from ..results import ImageResult
from ..stream import Stream, error_of
from .errors import problem_of
from .image_asks import ImageAsk
from .image_usage import usage_of
from .server import Server
from .sse import EventStream, frame
from .starting import start_pictures

log = logging.getLogger("hemiola.http")

PARTIAL, COMPLETED = "image_generation.partial_image", "image_generation.completed"


async def stream_pictures(server: Server, ask: ImageAsk) -> Response:
    """A response that shows the pictures as they are made, once it is clear that they will be.

    Raises:
        HemiolaError: the first thing that is heard is a failure.
    """
    stream = await start_pictures(server.calls, ask)
    batches = stream.batches()
    try:
        await asyncio.wait_for(stream.news(), server.settings.first_event_s)
        first = await anext(batches)
    except TimeoutError:
        first = []
    except asyncio.CancelledError:
        stream.cancel()
        raise
    if failure := next((event for event in first if isinstance(event, Failed)), None):
        stream.cancel()
        raise error_of(failure)
    shower = PictureShower(stream, ask)
    return EventStream(shower.frames(first, batches), stream.cancel, keep_alive_s=server.settings.keep_alive_s)


class PictureShower:
    """Turns the events of one call into frames."""

    def __init__(self, stream: Stream[ImageResult], ask: ImageAsk) -> None:
        self._stream = stream
        self._ask = ask
        self._start_s = time.monotonic()
        self._index = {request_id: i for i, request_id in enumerate(stream.request_ids)}
        self._pixels: dict[str, Pixels] = {}
        self._done: dict[str, Progress] = {}
        self._num_previews = dict.fromkeys(stream.request_ids, 0)

    async def frames(self, first: Sequence[Event], later: AsyncIterator[Sequence[Event]]) -> AsyncIterator[bytes]:
        """All frames, to the end or the first failure, which has a frame too."""
        try:
            for event in first:
                if shown := await self._frame(event):
                    yield shown
            async for events in later:
                for event in events:
                    if shown := await self._frame(event):
                        yield shown
        except HemiolaError as error:
            yield frame(problem_of(error).envelope, "error")
        except Exception as error:
            log.exception("A stream of pictures failed.")
            yield frame(problem_of(error).envelope, "error")
        finally:
            self._stream.cancel()

    async def _frame(self, event: Event) -> bytes:
        """What an event is shown as; nothing for some."""
        match event:
            case Progress():
                self._done[event.request_id] = event
                progress = {"index": self._index[event.request_id], "done": event.done, "total": event.total}
                return b": progress " + msgspec.json.encode(progress) + b"\n\n"
            case Preview():
                return await self._preview(event)
            case Image():
                self._pixels[event.request_id] = event.pixels
            case Finished():
                return await self._completed(event)
            case Failed():
                raise error_of(event)
        return b""

    async def _preview(self, event: Preview) -> bytes:
        """Of all previews as many as were asked for, spread over the steps."""
        number, wanted = self._num_previews[event.request_id], self._ask.max_previews
        progress = self._done.get(event.request_id)
        if number >= wanted or progress is None or event.step * (wanted + 1) < progress.total * (number + 1):
            return b""
        self._num_previews[event.request_id] += 1
        shown = {"partial_image_index": number, **await self._common(event.request_id, event.pixels)}
        return frame({"type": PARTIAL, **shown}, PARTIAL)

    async def _completed(self, event: Finished) -> bytes:
        seconds = round(time.monotonic() - self._start_s, 3)
        shown = await self._common(event.request_id, self._pixels.pop(event.request_id))
        usage = usage_of([event])
        return frame({"type": COMPLETED, **shown, "usage": usage, "inference_time_s": seconds}, COMPLETED)

    async def _common(self, request_id: str, pixels: Pixels) -> dict[str, Any]:
        data = await asyncio.to_thread(encode_picture, pixels, self._ask.picture_format, self._ask.compression)
        return {
            "b64_json": base64.b64encode(data).decode(),
            "created_at": int(time.time()),
            "size": f"{pixels.width}x{pixels.height}",
            "quality": "auto",
            "background": "opaque",
            "output_format": self._ask.picture_format,
            "model": self._ask.media.alias or self._ask.media.front.name,
            "index": self._index[request_id],
            "seed": self._ask.media.seed + self._index[request_id],
        }
