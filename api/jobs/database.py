"""One SQLite file, shared by threads: transactions that happen wholly or not at all, even when the process is killed.

Every commit is on the disk before it returns (WAL, synchronous=FULL). Calls block; coroutines make them on threads.
Knows no tables but the ones it creates.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hemiola.core.errors import HemiolaError

from .errors import StorageFailed

VERSION = 1
# `body` holds the record as JSON; the other columns are what is searched by.
_TABLES = """
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    tenant TEXT NOT NULL,
    bytes_reserved INTEGER NOT NULL,
    expires_at REAL,
    body BLOB NOT NULL
);
CREATE INDEX jobs_by_status ON jobs (status, seq);
CREATE TABLE files (
    owner TEXT NOT NULL,
    variant TEXT NOT NULL,
    name TEXT NOT NULL UNIQUE,
    nbytes INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, variant)
);
"""


class Database:
    """The file at `path`, made if it is not there.

    Raises:
        HemiolaError: it is not a database of ours, or a newer version's.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._open_tables(path)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise HemiolaError(f"{path} cannot be used as the database of results: {error}.") from error
        except HemiolaError:
            self._connection.close()
            raise

    def _open_tables(self, path: Path) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version != VERSION:
            raise HemiolaError(f"{path} was written by another version of Hemiola ({version}, not {VERSION}).")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Statements that take effect together at the end of the block, or not at all if it raises.

        Raises:
            StorageFailed: the disk is full, say.
        """
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise StorageFailed(f"The database of results failed: {error}.") from error
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def close(self) -> None:
        with self._lock:
            self._connection.close()
