"""Opens all that keeps results, in the right order, and closes it again."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from .database import Database
from .errors import StorageFailed
from .folder import DataFolder
from .limits import JobLimits
from .shelf import PictureShelf
from .store import ResultStore
from .videos import VideoJobs
from .worker import VideoCalls, VideoWorker

log = logging.getLogger(__name__)

_EXPIRE_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Media:
    """What a server needs to keep results."""

    videos: VideoJobs
    pictures: PictureShelf


@asynccontextmanager
async def open_media(
    calls: VideoCalls, data_folder: Path, limits: JobLimits, clock: Callable[[], float] = time.time
) -> AsyncIterator[Media]:
    """Results in that folder, with a worker that makes clips until the end of the block.

    Finished results of earlier servers are there again, and what was interrupted runs again.

    Raises:
        DataFolderInUse: another server has the folder.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = await asyncio.to_thread(DataFolder, data_folder)
        stack.callback(folder.close)
        database = await asyncio.to_thread(Database, folder.database)
        stack.callback(database.close)
        store = ResultStore(database, limits, clock)
        await asyncio.to_thread(_tidy, store, folder)
        worker = VideoWorker(calls, store, folder, limits)
        worker.start()
        stack.push_async_callback(worker.stop)
        expiry = asyncio.create_task(_expire(store, folder), name="hemiola-expiry")
        stack.push_async_callback(_end, expiry)
        yield Media(VideoJobs(store, folder, worker), PictureShelf(store, folder, limits))


def _tidy(store: ResultStore, folder: DataFolder) -> None:
    """What a killed server left: half-made files go, interrupted jobs are queued again or have failed."""
    folder.remove(store.expire())
    if num_strays := folder.keep_only(store.file_names()):
        log.info("Deleted %d files that an earlier server had not finished.", num_strays)
    for job in store.recover():
        log.info("%s was interrupted and is now %s.", job.id, job.status)


async def _expire(store: ResultStore, folder: DataFolder) -> None:
    while True:
        await asyncio.sleep(_EXPIRE_EVERY_S)
        try:
            names = await asyncio.to_thread(store.expire)
            await asyncio.to_thread(folder.remove, names)
        except (StorageFailed, OSError):
            log.exception("Expired results could not be deleted; trying again.")


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
