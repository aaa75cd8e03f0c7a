"""Raw frames on their way from the engine to the front: files in shared memory that whoever reads them removes.

A file on a tmpfs costs the same two copies as a mapped segment, but belongs to no process: nothing is left behind
or warned about when one is killed, and a full /dev/shm (64 MiB in a container) is an error to be answered, not a
bus error. Folders are private to one front, which holds a lock in each; a later front sweeps those without a holder.
"""

import fcntl
import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from hemiola.core.errors import HemiolaError

log = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "hemiola-"
_LOCK = "owner.lock"
# A Unix socket's address has room for 107 bytes; what is put behind the folder's name takes some.
_MAX_FOLDER_LEN = 80


class PrivateFolders:
    """A folder in shared memory, where there is any, and one on disk; both gone after `close`.

    Fields:
        disk: for sockets, and for frames that shared memory has no room for.
        all: for frames, best first.
    """

    def __init__(self, bases: Sequence[Path] | None = None) -> None:
        usual = Path(tempfile.gettempdir())
        short = usual if len(str(usual)) < _MAX_FOLDER_LEN - 20 else Path("/tmp")
        found = [base for base in (SHARED_MEMORY, short) if os.access(base, os.W_OK)] if bases is None else bases
        for base in found:
            sweep(base)
        made = [_make(base) for base in found]
        self._locks = [lock for _, lock in made]
        self.all = tuple(folder for folder, _ in made)
        self.disk = self.all[-1]

    def clear(self) -> int:
        """Removes what lies in the folders; how many files that were. Nobody may be writing."""
        left = [path for folder in self.all for path in folder.iterdir() if path.name != _LOCK]
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def close(self) -> None:
        for folder in self.all:
            shutil.rmtree(folder, ignore_errors=True)
        for lock in self._locks:
            lock.close()


def _make(base: Path) -> tuple[Path, IO[bytes]]:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))  # mode 0700
    unseen = folder / f"{_LOCK}.new"
    lock = unseen.open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unseen.rename(folder / _LOCK)  # held before a sweeping front can see it
    return folder, lock


def sweep(base: Path) -> None:
    """Removes folders whose front is gone. One without a lock file may just be being made: it is left alone."""
    for lock in base.glob(f"{PREFIX}*/{_LOCK}"):
        try:
            with lock.open("wb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue  # its front lives, or it is another user's
        log.info("Removed %s, left behind by a front that was killed.", lock.parent)


class FrameWriter:
    """Leaves frames for the front. Used by one thread.

    Args:
        folders: where, best first.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._numbers = itertools.count()

    def put(self, data: bytes) -> tuple[int, str]:
        """Where the bytes lie now: which folder, and the file's name.

        Raises:
            HemiolaError: no folder has room for them.
        """
        name = f"{os.getpid()}-{next(self._numbers)}.frames"
        for index, folder in enumerate(self._folders):
            path = folder / name
            try:
                path.write_bytes(data)
            except OSError as error:
                log.warning("%.1f MiB of frames do not fit into %s: %s", len(data) / 2**20, folder, error.strerror)
                path.unlink(missing_ok=True)
            else:
                return index, name
        raise HemiolaError(f"There is no room for {len(data) / 2**20:.1f} MiB of frames in {self._where()}.")

    def _where(self) -> str:
        return " or ".join(str(folder) for folder in self._folders)


def take(folders: Sequence[Path], place: tuple[int, str]) -> bytes:
    """The bytes that lie there; the file is gone afterwards."""
    index, name = place
    path = folders[index] / name
    data = path.read_bytes()
    path.unlink()
    return data
