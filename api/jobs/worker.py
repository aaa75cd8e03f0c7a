"""Makes the queued clips, oldest first, a few at a time, and writes their files.

An engine that takes nothing, because it is full or being restarted, leaves clips queued. One that dies on a clip has it
begun again, once. Progress is kept here and written down now and then. Knows jobs and streams, no HTTP.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, Protocol

from hemiola.core.errors import EngineDied, HemiolaError, Overloaded
from hemiola.core.events import Progress

from ..front.terms import CallTerms
from ..results import VideoResult
from ..stream import Stream
from .encode import save_clip, save_spritesheet, save_thumbnail
from .errors import StorageFailed
from .folder import DataFolder
from .limits import JobLimits
from .records import StoredFile, VideoAsk, VideoJob
from .store import ResultStore

log = logging.getLogger(__name__)

DENOISE_PERCENT = 95  # of a clip's progress; decoding, encoding and writing are the rest
_NOTE_EVERY_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0


class VideoCalls(Protocol):
    """What is needed of `Calls`."""

    def stream_video(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[VideoResult]: ...


@dataclass(slots=True)
class Running:
    """A clip that the engine has. `percent` is written by its task, read by whoever asks."""

    job: VideoJob
    stream: Stream[VideoResult]
    submitted_s: float
    percent: int
    task: "asyncio.Task[None] | None" = None


class VideoWorker:
    """Runs jobs of the store through the calls."""

    def __init__(self, calls: VideoCalls, store: ResultStore, folder: DataFolder, limits: JobLimits) -> None:
        self._calls = calls
        self._store = store
        self._folder = folder
        self._limits = limits
        self._running: dict[str, Running] = {}
        self._wake = asyncio.Event()
        self._pause_s = 0.0  # how long the engine is left alone, having refused
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to take jobs."""
        self._task = asyncio.create_task(self._run(), name="hemiola-videos")

    async def stop(self) -> None:
        """Gives up what runs; it stays queued for the next start."""
        running = [each.task for each in self._running.values() if each.task is not None]
        tasks = [task for task in (self._task, *running) if task is not None]
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("The worker of videos ended by an error.", exc_info=outcome)

    def wake(self) -> None:
        """There is a new job."""
        self._wake.set()

    def percent(self, job: VideoJob) -> int:
        """How far the job is now."""
        running = self._running.get(job.id)
        return job.progress if running is None or not job.is_unfinished else max(job.progress, running.percent)

    def abandon(self, job_id: str) -> None:
        """Nobody wants the job any more: aborts it, if it runs."""
        if (running := self._running.get(job_id)) is not None:
            _abort(running.stream)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._begin_queued()
            except StorageFailed as error:
                self._back_off(error)
                continue
            await self._wake.wait()

    async def _begin_queued(self) -> None:
        """Begins as many as may run."""
        while len(self._running) < self._limits.max_running:
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            job = await asyncio.to_thread(self._store.next_queued, tuple(self._running))
            if job is None:
                break
            await self._begin(job)

    async def _begin(self, job: VideoJob) -> None:
        """Hands the job to the engine, and leaves it to a task of its own."""
        try:
            submitted_s = time.monotonic()
            stream = await asyncio.to_thread(self._submit, job.ask)
        except (Overloaded, EngineDied) as error:
            self._back_off(error)
            return
        except Exception as error:
            await self._fail(job.id, error)
            return
        self._pause_s = 0.0
        running = Running(job, stream, submitted_s, job.progress)
        self._running[job.id] = running
        running.task = asyncio.create_task(self._make(running), name=job.id)

    def _submit(self, ask: VideoAsk) -> Stream[VideoResult]:
        return self._calls.stream_video(
            ask.prompt,
            model=ask.model,
            terms=CallTerms(tenant=ask.tenant, service_class=ask.service_class, priority=ask.priority),
            negative_prompt=ask.negative_prompt,
            size=(ask.width, ask.height),
            num_frames=ask.num_frames,
            fps=ask.fps,
            num_inference_steps=ask.num_inference_steps,
            guidance_scale=ask.guidance_scale,
            seed=ask.seed,
        )

    async def _make(self, running: Running) -> None:
        """Follows one clip to its end, whatever that is."""
        job_id = running.job.id
        try:
            if await asyncio.to_thread(self._store.begin, job_id) is not None:
                await self._finish(running)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(self._store.put_back, job_id))
            raise
        except Overloaded as error:
            await asyncio.to_thread(self._store.put_back, job_id)
            self._back_off(error)
        except EngineDied as error:
            self._back_off(error)
            await asyncio.to_thread(self._store.interrupted, job_id, error.message)
        except Exception as error:
            await self._fail(job_id, error)
        finally:
            _abort(running.stream)
            self._running.pop(job_id, None)
            self._wake.set()

    async def _finish(self, running: Running) -> None:
        await self._follow(running)
        result = await running.stream.aresult()
        inference_time_s = time.monotonic() - running.submitted_s
        files = await asyncio.to_thread(self._write, running.job.id, result)
        if await asyncio.to_thread(self._store.complete, running.job.id, files, inference_time_s) is None:
            await asyncio.to_thread(self._folder.remove, [file.name for file in files])

    async def _follow(self, running: Running) -> None:
        """Keeps the progress until the last event."""
        noted_s = time.monotonic()
        async for event in running.stream:
            if not isinstance(event, Progress):
                continue
            running.percent = max(running.percent, event.done * DENOISE_PERCENT // max(event.total, 1))
            if time.monotonic() - noted_s > _NOTE_EVERY_S:
                await asyncio.to_thread(self._store.note_progress, running.job.id, running.percent)
                noted_s = time.monotonic()

    def _write(self, job_id: str, result: VideoResult) -> list[StoredFile]:
        """The clip's files; the database is told of them when all are there."""
        made = (
            ("video", "mp4", "video/mp4", lambda path: save_clip(result.pixels, path, result.fps)),
            ("thumbnail", "webp", "image/webp", lambda path: save_thumbnail(result.pixels, path)),
            ("spritesheet", "jpg", "image/jpeg", lambda path: save_spritesheet(result.pixels, path)),
        )
        files = []
        for variant, ending, media_type, fill in made:
            name = f"{job_id}-{variant}.{ending}"
            nbytes = self._folder.write(name, fill)
            files.append(
                StoredFile(
                    owner=job_id, variant=variant, name=name, media_type=media_type, nbytes=nbytes, expires_at=0.0
                )
            )
        return files

    async def _fail(self, job_id: str, error: Exception) -> None:
        """Reports what went wrong: all of it to the log, and to the user what is the user's to know."""
        if isinstance(error, HemiolaError):
            code, message = error.code, error.message
        elif isinstance(error, OSError):
            code, message = StorageFailed.code, f"The finished clip could not be written: {error.strerror}."
        else:
            code, message = HemiolaError.code, "The clip could not be finished. The server's log says why."
        log.log(
            logging.INFO if isinstance(error, HemiolaError) else logging.ERROR, "%s failed.", job_id, exc_info=error
        )
        await asyncio.to_thread(self._store.fail, job_id, code, message)

    def _back_off(self, error: HemiolaError) -> None:
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        log.warning("No videos are begun: %s Trying again in %.2f s.", error.message, self._pause_s)


def _abort(stream: Stream[VideoResult]) -> None:
    """Ends what is unfinished; a dead engine has ended it already."""
    try:
        stream.cancel()
    except EngineDied as error:
        log.info("Nothing to abort: %s", error.message)
