"""Clips as jobs: asked for, looked up, listed, cancelled, deleted. What HTTP offers, without HTTP."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .errors import ResultNotFound
from .folder import DataFolder
from .records import StoredFile, VideoAsk, VideoJob
from .store import ResultStore
from .worker import VideoWorker

CANCELLED = "cancelled"


class VideoJobs:
    """The jobs of one store, run by one worker."""

    def __init__(self, store: ResultStore, folder: DataFolder, worker: VideoWorker) -> None:
        self._store = store
        self._folder = folder
        self._worker = worker

    async def create(self, ask: VideoAsk, *, seconds: str, model_alias: str | None = None) -> VideoJob:
        """Queues a clip; it is on the disk when this returns.

        Raises:
            QuotaExceeded: there is no room for its files.
        """
        job = VideoJob(
            id=f"video_{uuid.uuid4().hex}",
            ask=ask,
            seconds=seconds,
            created_at=self._store.clock(),
            model_alias=model_alias,
        )
        await asyncio.to_thread(self._store.add_job, job)
        self._worker.wake()
        return job

    async def get(self, job_id: str, tenant: str | None = None) -> VideoJob:
        """The job as it is now.

        Args:
            tenant: whose it has to be; None: anybody's.

        Raises:
            ResultNotFound: there is none of that id (any more).
        """
        job = await asyncio.to_thread(self._store.job, job_id)
        if job is None or tenant not in (None, job.ask.tenant):
            raise _missing(job_id)
        return self._current(job)

    async def page(
        self, after: str | None, limit: int, *, is_ascending: bool, tenant: str | None = None
    ) -> tuple[Sequence[VideoJob], bool]:
        """Up to `limit` jobs in order of creation, after a given one, and whether there are more.

        Raises:
            ResultNotFound: there is no job `after`.
        """
        found = await asyncio.to_thread(self._store.page, tenant, after, limit, is_ascending=is_ascending)
        if found is None:
            assert after is not None, "a first page is always found"
            raise _missing(after)
        jobs, has_more = found
        return [self._current(job) for job in jobs], has_more

    async def cancel(self, job_id: str) -> VideoJob:
        """An unfinished job has failed as cancelled, and the engine is rid of it; a finished one is as it was.

        Raises:
            ResultNotFound: there is none of that id.
        """
        await asyncio.to_thread(self._store.fail, job_id, CANCELLED, "The video was cancelled.")
        self._worker.abandon(job_id)
        return await self.get(job_id)

    async def delete(self, job_id: str) -> None:
        """The job and its files are gone; if it was unfinished, the engine is rid of it.

        Raises:
            ResultNotFound: there is none of that id.
        """
        names = await asyncio.to_thread(self._store.delete_job, job_id)
        if names is None:
            raise _missing(job_id)
        self._worker.abandon(job_id)
        await asyncio.to_thread(self._folder.remove, names)

    async def file(self, job_id: str, variant: str) -> tuple[StoredFile, Path] | None:
        """One of a completed job's files, and where it is; None if it has none of that name."""
        file = await asyncio.to_thread(self._store.file, job_id, variant)
        return None if file is None else (file, self._folder.path(file.name))

    def _current(self, job: VideoJob) -> VideoJob:
        return msgspec.structs.replace(job, progress=self._worker.percent(job))


def _missing(job_id: str) -> ResultNotFound:
    return ResultNotFound("video", f"There is no video '{job_id[:100]}', or it has expired.")
