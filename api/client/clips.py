"""A clip over HTTP: a job is created, asked after until it is done, fetched, and deleted, whatever became of it."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Finished, Progress, Usage, Video

from ..front.terms import CallTerms, check_options
from ..results import VideoResult
from .connection import Connection
from .decode import decode_clip
from .errors import ConnectionLost, error_of
from .pictures import UNKNOWN_SEED, media_fields
from .retries import TookNothing
from .text import Push

log = logging.getLogger(__name__)

_PATH = "/v1/videos"
_SHORTEST_WAIT_S, _LONGEST_WAIT_S, _USUAL_WAIT_S = 0.05, 10.0, 1.0
_FORGET_S = 5.0


@dataclass(frozen=True, slots=True)
class FetchedVideo(VideoResult):
    """A clip from a server. `mp4` is the file as it was sent; that is what is kept, so that nothing is lost again."""

    mp4: bytes = field(repr=False, default=b"")

    def to_mp4(self) -> bytes:
        return self.mp4


def clip_body(
    prompt: str, terms: CallTerms, *, num_frames: int | None = None, fps: int | None = None, **options: Any
) -> dict[str, Any]:
    """Options: see `media_fields`."""
    check_options(options, clip_body, media_fields)
    return {**media_fields(prompt, terms, **options), "num_frames": num_frames, "fps": fps}


class ClipReader:
    """Of one clip. `result` is there after `read`."""

    def __init__(self, request_id: str) -> None:
        self.result: FetchedVideo | None = None
        self._id = request_id

    async def read(self, connection: Connection, body: bytes, push: Push) -> None:
        """Has the clip made, and tells the events to the end. If it is cancelled, the job is deleted.

        Raises:
            HemiolaError: see `Connection.request`, and what the job says.
        """
        job, headers = await self._create(connection, body)
        try:
            job = await self._wait(connection, job, headers, push)
            mp4 = await connection.fetch(f"{_PATH}/{job['id']}/content")
            pixels, fps = await asyncio.to_thread(decode_clip, mp4)
        finally:
            await _shielded(_forget(connection, job["id"]))
        finished = Finished(self._id, "done", Usage(num_steps=job.get("num_inference_steps") or 0))
        seed = job.get("seed", UNKNOWN_SEED)
        self.result = FetchedVideo(job.get("model") or "", pixels, job.get("fps") or fps, seed, finished, mp4)
        push(Video(self._id, pixels, self.result.fps))
        push(finished)

    async def _create(self, connection: Connection, body: bytes) -> tuple[dict[str, Any], httpx.Headers]:
        """Sent again only where the server took nothing, or there would be two jobs."""
        job, headers = await connection.retried(partial(_create_once, connection, body))
        return _checked(job), headers

    async def _wait(
        self, connection: Connection, job: dict[str, Any], headers: httpx.Headers, push: Push
    ) -> dict[str, Any]:
        """The job when it is done."""
        told = -1
        while job.get("status") in ("queued", "in_progress"):
            if (percent := job.get("progress") or 0) > told:
                told = percent
                push(Progress(self._id, "video", percent, 100))
            await asyncio.sleep(_pause_s(headers))
            job, headers = await connection.ask("GET", f"{_PATH}/{job['id']}")
            job = _checked(job)
        if job.get("status") != "completed":
            raise error_of(job.get("error"), 500)
        push(Progress(self._id, "video", 100, 100))
        return job


async def _create_once(connection: Connection, body: bytes) -> tuple[Any, httpx.Headers]:
    """A job that was sent off is known before anybody gives up on it. Raises as `Connection.ask_once`."""
    creation = asyncio.ensure_future(connection.ask_once("POST", _PATH, body))
    try:
        return await asyncio.shield(creation)
    except asyncio.CancelledError:
        await _shielded(_forget_when_there(connection, creation))
        raise


def _checked(job: Any) -> dict[str, Any]:
    if not isinstance(job, dict) or not isinstance(job.get("id"), str):
        raise ConnectionLost("The server answered something that is no video job.")
    return job


def _pause_s(headers: Mapping[str, str]) -> float:
    """Until the job is asked after again: as long as the server wishes, within reason."""
    wished = headers.get("openai-poll-after-ms", "")
    seconds = int(wished) / 1000 if wished.isdecimal() else _USUAL_WAIT_S
    return min(max(seconds, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)


async def _forget(connection: Connection, job_id: str) -> None:
    try:
        await asyncio.wait_for(connection.ask("DELETE", f"{_PATH}/{job_id}"), _FORGET_S)
    except (HemiolaError, TimeoutError) as error:
        log.warning("The server still has %s: %s", job_id, error)


async def _forget_when_there(connection: Connection, creation: "asyncio.Future[tuple[Any, httpx.Headers]]") -> None:
    try:
        job, _ = await creation
    except (HemiolaError, TookNothing):
        return  # then there is no job
    await _forget(connection, _checked(job)["id"])


async def _shielded(work: Any) -> None:
    """Goes on even if whoever waits for it is cancelled (again)."""
    await asyncio.shield(asyncio.ensure_future(work))
