"""The table of files: which are kept, of whom, and until when. Every function is part of the caller's transaction."""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from .records import StoredFile

_decode = msgspec.json.Decoder(StoredFile).decode


def add(rows: sqlite3.Connection, files: Iterable[StoredFile]) -> None:
    """Writes down files that are there already."""
    rows.executemany(
        "INSERT INTO files (owner, variant, name, nbytes, expires_at, body) VALUES (?, ?, ?, ?, ?, ?)",
        [(f.owner, f.variant, f.name, f.nbytes, f.expires_at, msgspec.json.encode(f)) for f in files],
    )


def find(rows: sqlite3.Connection, owner: str, variant: str, now: float) -> StoredFile | None:
    """One file, unless it has expired."""
    query = "SELECT body FROM files WHERE owner = ? AND variant = ? AND expires_at > ?"
    row = rows.execute(query, (owner, variant, now)).fetchone()
    return None if row is None else _decode(row[0])


def forget(rows: sqlite3.Connection, owner: str) -> Sequence[str]:
    """Strikes out an owner's files; the names of what is to be deleted."""
    return [name for (name,) in rows.execute("DELETE FROM files WHERE owner = ? RETURNING name", (owner,))]


def forget_expired(rows: sqlite3.Connection, now: float) -> Sequence[str]:
    """Strikes out what has expired; the names of what is to be deleted."""
    return [name for (name,) in rows.execute("DELETE FROM files WHERE expires_at <= ? RETURNING name", (now,))]


def names(rows: sqlite3.Connection) -> Sequence[str]:
    """Of all files that ought to be there."""
    return [name for (name,) in rows.execute("SELECT name FROM files")]


def total_bytes(rows: sqlite3.Connection) -> int:
    """Of all files that are kept."""
    (nbytes,) = rows.execute("SELECT coalesce(sum(nbytes), 0) FROM files").fetchone()
    return int(nbytes)


def num_pictures(rows: sqlite3.Connection) -> int:
    """Files whose owner is no job."""
    (count,) = rows.execute("SELECT count(*) FROM files WHERE owner NOT IN (SELECT id FROM jobs)").fetchone()
    return int(count)
