"""What is left when a server that keeps results is killed: nothing half, and nothing lost that was promised."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import httpx
import pytest

from hemiola.api.jobs import JobLimits, VideoJob, open_media
from hemiola.api.jobs.database import Database
from hemiola.api.jobs.folder import DataFolder
from hemiola.api.jobs.store import ResultStore
from hemiola.tests.api.http import crashing_maker, painting_server
from hemiola.tests.api.http.media_rig import Painter, open_calls


def killed_after(folder: Path, delay_s: float) -> list[str]:
    """What a maker said until it was killed, so long after it was ready."""
    maker = subprocess.Popen([sys.executable, crashing_maker.__file__, str(folder)], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None and maker.stdout.readline() == "ready\n"
    time.sleep(delay_s)
    maker.kill()
    said = maker.stdout.read().splitlines()
    maker.wait()
    return said


def checked_jobs(folder: Path, said: set[str]) -> dict[str, VideoJob]:
    """The jobs that are there after a kill, having checked that nothing is half or lost."""
    opened = DataFolder(folder)
    database = Database(opened.database)
    store = ResultStore(database, JobLimits())
    jobs, has_more = store.page(None, None, 10_000, is_ascending=True) or pytest.fail("no page")
    assert not has_more
    by_id = {job.id: job for job in jobs}
    ids = {mark: {line[1:] for line in said if line[0] == mark} for mark in "+=?-"}
    assert ids["+"] - ids["?"] <= set(by_id), "an accepted job is lost"
    assert not ids["-"] & set(by_id), "a deleted job is back"
    assert all(by_id[job_id].status == "completed" for job_id in ids["="] & set(by_id))
    listed = set(store.file_names())
    there = {path.name for path in (folder / "media").iterdir() if path.is_file()}
    assert listed <= there, "a file that is kept is not there"
    for job in jobs:
        names = {name for name in listed if name.startswith(job.id)}
        assert len(names) == (3 if job.status == "completed" else 0)
        if job.status == "completed":
            file = store.file(job.id, "video")
            assert file is not None and opened.path(file.name).stat().st_size == file.nbytes
            with av.open(str(opened.path(file.name))) as container:
                assert sum(1 for _ in container.decode(video=0)) == 9
    database.close()
    opened.close()
    return by_id


async def test_being_killed_at_any_moment_leaves_nothing_half(tmp_path: Path) -> None:
    """Six makers, one after the other in one folder, each killed at a random moment; then a server tidies up."""
    folder = tmp_path / "data"
    said: set[str] = set()
    delays = random.Random(0)
    for _ in range(6):
        said |= set(killed_after(folder, delays.uniform(0.05, 0.6)))
        by_id = checked_jobs(folder, said)
    assert sum(line[0] == "=" for line in said) > 5, "too little happened for the test to mean anything"
    calls = open_calls(tmp_path / "models", Painter())
    async with open_media(calls, folder, JobLimits()) as media:
        for job_id in by_id:
            while (await media.videos.get(job_id)).is_unfinished:
                await asyncio.sleep(0.01)
    calls.close()
    by_id = checked_jobs(folder, said)
    assert {job.status for job in by_id.values()} <= {"completed", "failed"}
    num_files = sum(1 for path in (folder / "media").iterdir() if path.is_file())
    assert num_files == 3 * sum(job.status == "completed" for job in by_id.values())


async def test_a_server_that_is_killed_in_the_middle_of_a_clip_makes_it_when_it_is_back(tmp_path: Path) -> None:
    with painting(tmp_path, "hold") as (maker, url):
        done = httpx.post(f"{url}/v1/videos", json={"prompt": "fox", "seed": 1, "num_inference_steps": 1}).json()
        job = httpx.post(f"{url}/v1/videos", json={"prompt": "fox", "seed": 2}).json()
        while httpx.get(f"{url}/v1/videos/{job['id']}").json()["progress"] < 71:
            time.sleep(0.01)
        assert httpx.get(f"{url}/v1/videos/{done['id']}").json()["status"] == "completed"
        data = httpx.get(f"{url}/v1/videos/{done['id']}/content").content
        maker.kill()
    with painting(tmp_path, "go") as (_, url):
        assert httpx.get(f"{url}/v1/videos/{done['id']}/content").content == data
        while (again := httpx.get(f"{url}/v1/videos/{job['id']}").json())["status"] in ("queued", "in_progress"):
            time.sleep(0.01)
        assert (again["status"], again["seed"]) == ("completed", 2)
        assert httpx.get(f"{url}/v1/videos/{job['id']}/content").headers["content-type"] == "video/mp4"


@contextmanager
def painting(folder: Path, how: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its URL; killed in the end, if it has not been."""
    command = [sys.executable, painting_server.__file__, str(folder), how]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server, server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
