"""Clips as jobs: made in order, kept, expired, within a quota, through stops and restarts."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

from hemiola.api.calls import Calls
from hemiola.api.jobs import (
    DataFolderInUse,
    JobLimits,
    Media,
    QuotaExceeded,
    ResultNotFound,
    StorageFailed,
    VideoJob,
    check_data_folder,
)
from hemiola.api.jobs import open_media as open_results
from hemiola.api.jobs.database import Database
from hemiola.api.jobs.folder import DataFolder
from hemiola.api.jobs.store import ResultStore
from hemiola.core.errors import EngineDied, InvalidRequest, Overloaded
from hemiola.tests.api.http.crashing_maker import ask
from hemiola.tests.api.http.media_rig import Painter, open_calls


@dataclass
class Rig:
    """Calls over a painter, and a data folder that can be opened again and again. `now_s` is added to the time."""

    folder: Path
    calls: Calls
    painter: Painter
    now_s: float = 0.0

    @asynccontextmanager
    async def open(self, **limits: Any) -> AsyncIterator[Media]:
        async with open_results(
            self.calls, self.folder, JobLimits(**limits), clock=lambda: time.time() + self.now_s
        ) as media:
            yield media

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "media").iterdir() if path.is_file())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    painter = Painter()
    calls = open_calls(tmp_path / "models", painter)
    yield Rig(tmp_path / "data", calls, painter)
    painter.let_go()
    calls.close()


async def until(check: Callable[[], Awaitable[Any]], timeout_s: float = 20.0) -> Any:
    """What `check` gives, as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := await check()):
        assert time.monotonic() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.01)
    return value


async def ended(media: Media, job_id: str) -> VideoJob:
    async def check() -> VideoJob | None:
        job = await media.videos.get(job_id)
        return None if job.is_unfinished else job

    job: VideoJob = await until(check)
    return job


async def begun(media: Media, job_id: str) -> None:
    """Waits until the job has done all steps but the last, which the painter holds back."""

    async def check() -> bool:
        return (await media.videos.get(job_id)).progress > 0

    await until(check)


async def test_a_clip_is_made_and_its_three_files_are_kept(rig: Rig) -> None:
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=3), seconds="1")
        assert (job.status, job.progress) == ("queued", 0)
        done = await ended(media, job.id)
        assert (done.status, done.progress, done.attempts) == ("completed", 100, 1)
        assert done.expires_at is not None and done.completed_at is not None
        assert done.expires_at == pytest.approx(done.completed_at + 24 * 3600)
        assert done.inference_time_s is not None and done.inference_time_s > 0
        found = {name: await media.videos.file(job.id, name) for name in ("video", "thumbnail", "spritesheet")}
        paths = {name: each[1] for name, each in found.items() if each is not None}
    with av.open(str(paths["video"])) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 8
    assert len(frames) == 9 and frames[0].shape == (32, 48, 3)
    assert int(frames[8][0, 0, 2]) > int(frames[0][0, 0, 2]) + 100  # it grows brighter
    thumbnail, sheet = Image.open(paths["thumbnail"]), Image.open(paths["spritesheet"])
    assert (thumbnail.format, thumbnail.size) == ("WEBP", (48, 32))
    assert (sheet.format, sheet.size) == ("JPEG", (3 * 48, 3 * 32))
    blue = sheet.getchannel("B").tobytes()
    assert blue[-1] > blue[0] + 100  # the last frame is below on the right
    request = rig.painter.requests[0]
    assert (request.seed, request.num_frames, request.fps, request.guidance_scale) == (3, 9, 8, 4.0)


async def test_progress_rises_and_waits_below_100_for_the_files(rig: Rig) -> None:
    rig.painter.hold()
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        await begun(media, job.id)
        seen = [0]
        while seen[-1] < 71:  # three of four steps
            seen.append((await media.videos.get(job.id)).progress)
        assert seen == sorted(seen) and seen[-1] == 71
        assert (await media.videos.get(job.id)).status == "in_progress"
        rig.painter.let_go()
        assert (await ended(media, job.id)).progress == 100


async def test_only_so_many_run_at_once_and_the_oldest_first(rig: Rig) -> None:
    rig.painter.hold()
    async with rig.open(max_running=2) as media:
        jobs = [await media.videos.create(ask(seed=i), seconds="1") for i in range(4)]
        await begun(media, jobs[1].id)
        assert [(await media.videos.get(job.id)).status for job in jobs] == ["in_progress"] * 2 + ["queued"] * 2
        assert rig.painter.num_running == 2
        rig.painter.let_go()
        assert [(await ended(media, job.id)).status for job in jobs] == ["completed"] * 4
    assert sorted(request.seed for request in rig.painter.requests[:2]) == [0, 1]
    assert [request.seed for request in rig.painter.requests[2:]] == [2, 3]


async def test_finished_clips_are_there_after_a_restart(rig: Rig) -> None:
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=1), seconds="1")
        done = await ended(media, job.id)
        _, path = await media.videos.file(job.id, "video") or pytest.fail("no file")
        data = path.read_bytes()
    async with rig.open() as media:
        assert await media.videos.get(job.id) == done
        assert (await media.videos.file(job.id, "video") or pytest.fail("no file"))[1].read_bytes() == data
    assert len(rig.painter.requests) == 1


async def test_a_clip_that_a_stop_interrupts_is_made_by_the_next_server(rig: Rig) -> None:
    rig.painter.hold()
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=5), seconds="1")
        await begun(media, job.id)
    await until(lambda: asyncio.sleep(0, len(rig.painter.aborted) == 1))
    rig.painter.let_go()
    async with rig.open() as media:
        done = await ended(media, job.id)
    assert (done.status, done.attempts) == ("completed", 1)
    assert [request.seed for request in rig.painter.requests] == [5, 5]


@pytest.mark.parametrize(("earlier", "status"), [(1, "queued"), (2, "failed")])
async def test_a_clip_that_a_crash_interrupts_runs_again_once(tmp_path: Path, earlier: int, status: str) -> None:
    database = Database(tmp_path / "results")
    store = ResultStore(database, JobLimits(max_attempts=2))
    store.add_job(VideoJob(id="video_1", ask=ask(seed=0), seconds="1", created_at=0.0))
    for _ in range(earlier):
        assert store.begin("video_1") is not None
        store.note_progress("video_1", 40)
        (job,) = store.recover()
    database.close()
    assert (job.status, job.attempts, job.progress) == (status, earlier, 40)
    if status == "failed":
        assert job.error_code == "interrupted" and job.error_message is not None and "2 times" in job.error_message
        assert job.expires_at is not None


async def test_a_clip_that_an_engine_dies_of_runs_again_once(rig: Rig) -> None:
    rig.painter.death = "engine_died"
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        failed = await ended(media, job.id)
    assert (failed.status, failed.error_code, failed.attempts) == ("failed", "interrupted", 2)
    assert len(rig.painter.requests) == 2


@pytest.mark.parametrize("refusal", [Overloaded("The queue is full."), EngineDied("It restarts.")])
async def test_an_engine_that_takes_nothing_is_waited_for(rig: Rig, refusal: Exception) -> None:
    rig.painter.refusal = refusal  # type: ignore[assignment]
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        await asyncio.sleep(0.3)
        assert (await media.videos.get(job.id)).status == "queued"
        rig.painter.refusal = None
        assert (await ended(media, job.id)).attempts == 1


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        ("insufficient_memory", None),
        ("invalid_value", InvalidRequest("width", "Too wide.")),
        ("internal_error", ValueError()),
    ],
)
async def test_a_clip_that_fails_says_why(rig: Rig, code: str, refusal: Exception | None) -> None:
    rig.painter.death, rig.painter.refusal = code, refusal  # type: ignore[assignment]
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        failed = await ended(media, job.id)
        assert (failed.status, failed.error_code) == ("failed", code)
        assert failed.error_message and failed.progress < 100
        rig.painter.death = rig.painter.refusal = None
        assert (await ended(media, (await media.videos.create(ask(seed=0), seconds="1")).id)).status == "completed"
    assert rig.painter.num_running == 0


async def test_a_clip_whose_files_cannot_be_written_fails(rig: Rig) -> None:
    rig.painter.hold()
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        await begun(media, job.id)
        (rig.folder / "media" / ".new").rmdir()
        rig.painter.let_go()
        failed = await ended(media, job.id)
    assert (failed.error_code, failed.error_message) == (
        "storage_failed", "The finished clip could not be written: No such file or directory.",
    )  # fmt: skip


async def test_cancelling_aborts_what_runs_and_forgets_what_waits(rig: Rig) -> None:
    rig.painter.hold()
    async with rig.open(max_running=1) as media:
        running, waiting = [await media.videos.create(ask(seed=i), seconds="1") for i in range(2)]
        await begun(media, running.id)
        for job in (waiting, running):
            cancelled = await media.videos.cancel(job.id)
            assert (cancelled.status, cancelled.error_code) == ("failed", "cancelled")
        await until(lambda: asyncio.sleep(0, rig.painter.num_running == 0))
        assert len(rig.painter.requests) == len(rig.painter.aborted) == 1
        rig.painter.let_go()
        third = await media.videos.create(ask(seed=2), seconds="1")
        assert (await ended(media, third.id)).status == "completed"
        assert (await media.videos.cancel(third.id)).status == "completed"


async def test_deleting_aborts_what_runs_and_removes_the_files(rig: Rig) -> None:
    async with rig.open() as media:
        done = await media.videos.create(ask(seed=0), seconds="1")
        await ended(media, done.id)
        assert len(rig.files) == 3
        rig.painter.hold()
        running = await media.videos.create(ask(seed=1), seconds="1")
        await begun(media, running.id)
        for job in (done, running):
            await media.videos.delete(job.id)
            with pytest.raises(ResultNotFound):
                await media.videos.get(job.id)
            assert await media.videos.file(job.id, "video") is None
        await until(lambda: asyncio.sleep(0, rig.painter.num_running == 0))
        assert rig.files == [] and len(rig.painter.aborted) == 1
        with pytest.raises(ResultNotFound):
            await media.videos.delete(done.id)


async def test_deleting_while_the_files_are_written_leaves_none(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig.open() as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        write = DataFolder.write

        def slowly(self: DataFolder, name: str, fill: Any) -> int:
            time.sleep(0.2)
            return write(self, name, fill)

        monkeypatch.setattr(DataFolder, "write", slowly)
        await until(lambda: asyncio.sleep(0, bool(rig.files)))
        await media.videos.delete(job.id)
        await until(lambda: asyncio.sleep(0, not rig.files))
        await asyncio.sleep(0.7)
        assert rig.files == []


async def test_results_expire(rig: Rig) -> None:
    async with rig.open(keep_videos_s=100) as media:
        job = await media.videos.create(ask(seed=0), seconds="1")
        await ended(media, job.id)
        picture = media.pictures.add([b"picture"], "png")
        rig.now_s += 99
        assert (await media.videos.get(job.id)).status == "completed"
        assert media.pictures.find(picture, "0")[1].read_bytes() == b"picture"
        rig.now_s += 2
        with pytest.raises(ResultNotFound):
            await media.videos.get(job.id)
        assert await media.videos.file(job.id, "video") is None
        assert (await media.videos.page(None, 10, is_ascending=True))[0] == []
        rig.now_s += 3600
        with pytest.raises(ResultNotFound):
            media.pictures.find(picture, "0")
        assert len(rig.files) == 4
    async with rig.open(keep_videos_s=100):
        assert rig.files == []


async def test_pages_go_both_ways(rig: Rig) -> None:
    async with rig.open() as media:
        ids = [(await media.videos.create(ask(seed=i), seconds="1")).id for i in range(5)]
        jobs, has_more = await media.videos.page(None, 2, is_ascending=False)
        assert ([job.id for job in jobs], has_more) == ([ids[4], ids[3]], True)
        jobs, has_more = await media.videos.page(ids[3], 3, is_ascending=False)
        assert ([job.id for job in jobs], has_more) == ([ids[2], ids[1], ids[0]], False)
        jobs, has_more = await media.videos.page(ids[0], 3, is_ascending=True)
        assert ([job.id for job in jobs], has_more) == (ids[1:4], True)
        with pytest.raises(ResultNotFound, match="video_unknown"):
            await media.videos.page("video_unknown", 3, is_ascending=True)


async def test_more_clips_than_may_be_kept_are_refused(rig: Rig) -> None:
    async with rig.open(max_videos=2) as media:
        first, _ = [await media.videos.create(ask(seed=i), seconds="1") for i in range(2)]
        with pytest.raises(QuotaExceeded, match="2 videos are kept"):
            await media.videos.create(ask(seed=2), seconds="1")
        await media.videos.delete(first.id)
        await media.videos.create(ask(seed=2), seconds="1")


async def test_bytes_are_reserved_while_a_clip_is_made_and_freed_afterwards(rig: Rig) -> None:
    reserved = 48 * 32 * 9 * 3 // 2
    async with rig.open(max_bytes=int(1.5 * reserved)) as media:
        rig.painter.hold()
        job = await media.videos.create(ask(seed=0), seconds="1")
        with pytest.raises(QuotaExceeded, match=r"needs up to 0\.0 MiB"):
            await media.videos.create(ask(seed=1), seconds="1")
        with pytest.raises(QuotaExceeded):
            media.pictures.check_room(1, reserved)
        rig.painter.let_go()
        await ended(media, job.id)
        media.pictures.check_room(1, reserved // 2)
        with pytest.raises(QuotaExceeded):
            media.pictures.add([bytes(2 * reserved)], "png")
        assert len(rig.files) == 3


async def test_more_pictures_than_may_be_kept_are_refused(rig: Rig) -> None:
    async with rig.open(max_pictures=2) as media:
        media.pictures.add([b"1", b"2"], "png")
        with pytest.raises(QuotaExceeded, match="2 pictures are kept"):
            media.pictures.check_room(1, 10)


async def test_a_folder_serves_one_server(rig: Rig) -> None:
    check_data_folder(rig.folder)
    async with rig.open():
        with pytest.raises(DataFolderInUse):
            async with rig.open():
                pytest.fail("opened twice")
        with pytest.raises(DataFolderInUse, match="Choose another folder"):
            check_data_folder(rig.folder)
    async with rig.open():
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailed, match="file/data: Not a directory"):
        check_data_folder(tmp_path / "file" / "data")
