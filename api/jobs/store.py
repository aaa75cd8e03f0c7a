"""Jobs and files as the database has them. Each method is one transaction; after a crash all of it is there or none.

Says what is to become of files, but touches none. Knows no engine.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from . import file_rows
from .database import Database
from .limits import JobLimits
from .quota import check_room_for_pictures, check_room_for_video
from .records import StoredFile, VideoJob

INTERRUPTED = "interrupted"

_decode = msgspec.json.Decoder(VideoJob).decode
_SEEN = "(expires_at IS NULL OR expires_at > ?) AND (? IS NULL OR tenant = ?)"


class ResultStore:
    """What is kept, within `limits`. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, limits: JobLimits, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._limits = limits
        self.clock = clock

    # Jobs

    def add_job(self, job: VideoJob) -> None:
        """Queues a job.

        Raises:
            QuotaExceeded: there is no room for it.
        """
        with self._database.transaction() as rows:
            check_room_for_video(rows, self._limits, job.bytes_reserved)
            rows.execute(
                "INSERT INTO jobs (id, status, tenant, bytes_reserved, body) VALUES (?, ?, ?, ?, ?)",
                (job.id, job.status, job.ask.tenant, job.bytes_reserved, msgspec.json.encode(job)),
            )

    def job(self, job_id: str) -> VideoJob | None:
        """The job of that id, unless it has expired."""
        with self._database.transaction() as rows:
            return _find(rows, job_id, self.clock())

    def page(
        self, tenant: str | None, after: str | None, limit: int, *, is_ascending: bool
    ) -> tuple[Sequence[VideoJob], bool] | None:
        """Up to `limit` jobs that come after one in order of creation, and whether there are more.

        Of one tenant, or of all. None if there is no job `after`.
        """
        order, beyond = ("ASC", ">") if is_ascending else ("DESC", "<")
        with self._database.transaction() as rows:
            where, values = _SEEN, [self.clock(), tenant, tenant]
            if after is not None:
                query = f"SELECT seq FROM jobs WHERE {where} AND id = ?"
                row = rows.execute(query, (*values, after)).fetchone()
                if row is None:
                    return None
                where, values = f"{where} AND seq {beyond} ?", [*values, row[0]]
            query = f"SELECT body FROM jobs WHERE {where} ORDER BY seq {order} LIMIT ?"
            found = [_decode(body) for (body,) in rows.execute(query, (*values, limit + 1))]
        return found[:limit], len(found) > limit

    def next_queued(self, skip: Collection[str] = ()) -> VideoJob | None:
        """The queued job that has waited longest, of those that are not in `skip`."""
        marks = ", ".join("?" * len(skip))
        query = f"SELECT body FROM jobs WHERE status = 'queued' AND id NOT IN ({marks}) ORDER BY seq LIMIT 1"
        with self._database.transaction() as rows:
            row = rows.execute(query, tuple(skip)).fetchone()
        return None if row is None else _decode(row[0])

    def begin(self, job_id: str) -> VideoJob | None:
        """A queued job becomes one in progress; None if it is not queued (any more)."""
        return self._change(
            job_id,
            lambda job: {"status": "in_progress", "started_at": self.clock(), "attempts": job.attempts + 1},
            only="queued",
        )

    def note_progress(self, job_id: str, percent: int) -> None:
        """Remembers how far a job is, so that it never seems to fall back."""
        self._change(job_id, lambda job: {"progress": max(job.progress, percent)}, only="in_progress")

    def put_back(self, job_id: str) -> None:
        """A job in progress is queued again as if it had not been begun: the server stops in good order."""
        self._change(job_id, lambda job: {"status": "queued", "attempts": job.attempts - 1}, only="in_progress")

    def interrupted(self, job_id: str, reason: str) -> VideoJob | None:
        """A job in progress has lost its engine or server: it is queued again, or has failed if that was too often."""
        return self._change(job_id, lambda job: self._after_interruption(job, reason), only="in_progress")

    def recover(self) -> Sequence[VideoJob]:
        """At start: jobs that were in progress when the server was killed are taken as interrupted."""
        with self._database.transaction() as rows:
            ids = [id for (id,) in rows.execute("SELECT id FROM jobs WHERE status = 'in_progress' ORDER BY seq")]
        jobs = [self.interrupted(job_id, "The server was stopped while it made this.") for job_id in ids]
        return [job for job in jobs if job is not None]

    def fail(self, job_id: str, code: str, message: str) -> VideoJob | None:
        """An unfinished job has failed; None if it was not unfinished."""
        return self._change(job_id, lambda job: self._failed(code, message))

    def complete(self, job_id: str, files: Sequence[StoredFile], inference_time_s: float) -> VideoJob | None:
        """A job in progress has its files, which live as long as it; None if it is not in progress any more."""
        with self._database.transaction() as rows:
            now = self.clock()
            job = _find(rows, job_id, now)
            if job is None or job.status != "in_progress":
                return None
            done = msgspec.structs.replace(
                job,
                status="completed",
                progress=100,
                completed_at=now,
                expires_at=now + self._limits.keep_videos_s,
                inference_time_s=inference_time_s,
            )
            _save(rows, done)
            file_rows.add(rows, [msgspec.structs.replace(file, expires_at=done.expires_at) for file in files])
        return done

    def delete_job(self, job_id: str) -> Sequence[str] | None:
        """Strikes out a job in any state; the names of its files. None if there is none of that id."""
        with self._database.transaction() as rows:
            if _find(rows, job_id, self.clock()) is None:
                return None
            rows.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
            return file_rows.forget(rows, job_id)

    # Files

    def check_pictures(self, count: int, nbytes: int) -> None:
        """Raises QuotaExceeded unless so many more may be kept."""
        with self._database.transaction() as rows:
            check_room_for_pictures(rows, self._limits, count, nbytes)

    def add_pictures(self, files: Sequence[StoredFile]) -> None:
        """Writes down pictures that are there.

        Raises:
            QuotaExceeded: there is no room for them (any more).
        """
        with self._database.transaction() as rows:
            check_room_for_pictures(rows, self._limits, len(files), sum(file.nbytes for file in files))
            file_rows.add(rows, files)

    def file(self, owner: str, variant: str) -> StoredFile | None:
        """A file that is kept."""
        with self._database.transaction() as rows:
            return file_rows.find(rows, owner, variant, self.clock())

    def file_names(self) -> Sequence[str]:
        """Of all files that are kept."""
        with self._database.transaction() as rows:
            return file_rows.names(rows)

    def expire(self) -> Sequence[str]:
        """Strikes out what has expired; the names of its files."""
        with self._database.transaction() as rows:
            now = self.clock()
            rows.execute("DELETE FROM jobs WHERE expires_at <= ?", (now,))
            return file_rows.forget_expired(rows, now)

    # Inside

    def _change(
        self, job_id: str, changes: Callable[[VideoJob], dict[str, object]], only: str | None = None
    ) -> VideoJob | None:
        """The changed job; None if it is not there, or finished, or not in the status `only`."""
        with self._database.transaction() as rows:
            job = _find(rows, job_id, self.clock())
            if job is None or not job.is_unfinished or job.status != (only or job.status):
                return None
            changed = msgspec.structs.replace(job, **changes(job))
            _save(rows, changed)
        return changed

    def _after_interruption(self, job: VideoJob, reason: str) -> dict[str, object]:
        if job.attempts < self._limits.max_attempts:
            return {"status": "queued"}
        return self._failed(INTERRUPTED, f"{reason} It was begun {job.attempts} times.")

    def _failed(self, code: str, message: str) -> dict[str, object]:
        return {
            "status": "failed",
            "expires_at": self.clock() + self._limits.keep_videos_s,
            "error_code": code,
            "error_message": message,
        }


def _find(rows: sqlite3.Connection, job_id: str, now: float) -> VideoJob | None:
    query = "SELECT body FROM jobs WHERE id = ? AND (expires_at IS NULL OR expires_at > ?)"
    row = rows.execute(query, (job_id, now)).fetchone()
    return None if row is None else _decode(row[0])


def _save(rows: sqlite3.Connection, job: VideoJob) -> None:
    rows.execute(
        "UPDATE jobs SET status = ?, bytes_reserved = ?, expires_at = ?, body = ? WHERE id = ?",
        (job.status, job.bytes_reserved, job.expires_at, msgspec.json.encode(job), job.id),
    )
