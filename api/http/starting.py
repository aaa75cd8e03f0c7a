"""Starts calls on a thread, since a long prompt takes a while to tokenize."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ..calls import Calls
from ..results import ImageResult
from ..stream import Stream
from .image_asks import ImageAsk

T = TypeVar("T")


async def start_pictures(calls: Calls, ask: ImageAsk) -> Stream[ImageResult]:
    """Submits the pictures that are asked for."""
    media = ask.media
    return await start_stream(
        lambda: calls.stream_image(
            media.prompt,
            model=media.front.name,
            terms=media.terms,
            size=(media.width, media.height),
            seed=media.seed,
            n=ask.n,
            **media.options,
        )
    )


async def start_stream(call: Callable[[], Stream[T]]) -> Stream[T]:
    """What the call gives; if nobody waits for it any more by then, it is cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_abandon)
        raise


def _abandon(task: "asyncio.Task[Stream[Any]]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().cancel()
