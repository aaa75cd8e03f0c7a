"""Whether there is room for another result, judged inside the transaction that adds it."""

import sqlite3

from . import file_rows
from .errors import QuotaExceeded
from .limits import JobLimits


def check_room_for_video(rows: sqlite3.Connection, limits: JobLimits, nbytes: int) -> None:
    """Raises QuotaExceeded unless one more clip of `nbytes` may be kept."""
    (num_jobs,) = rows.execute("SELECT count(*) FROM jobs").fetchone()
    if num_jobs >= limits.max_videos:
        raise QuotaExceeded(f"{num_jobs} videos are kept, and no more may be. {_REMEDY}")
    _check_bytes(rows, limits, nbytes)


def check_room_for_pictures(rows: sqlite3.Connection, limits: JobLimits, count: int, nbytes: int) -> None:
    """Raises QuotaExceeded unless `count` more pictures of `nbytes` together may be kept."""
    num_kept = file_rows.num_pictures(rows)
    if num_kept + count > limits.max_pictures:
        raise QuotaExceeded(
            f"{num_kept} pictures are kept, and no more than {limits.max_pictures} may be. "
            "Ask for 'b64_json', or wait until some expire."
        )
    _check_bytes(rows, limits, nbytes)


def _check_bytes(rows: sqlite3.Connection, limits: JobLimits, nbytes: int) -> None:
    (reserved,) = rows.execute("SELECT coalesce(sum(bytes_reserved), 0) FROM jobs").fetchone()
    used = file_rows.total_bytes(rows) + reserved
    if used + nbytes > limits.max_bytes:
        raise QuotaExceeded(
            f"{used / 2**20:,.1f} MiB of results are kept or being made, of at most {limits.max_bytes / 2**20:,.1f} "
            f"MiB; this one needs up to {nbytes / 2**20:,.1f} MiB. {_REMEDY}"
        )


_REMEDY = "Delete some with DELETE /v1/videos/{id}, or wait until some expire."
