"""The folder in which a server keeps results: files that are written wholly or not at all, and nobody else's.

    hemiola.sqlite3   what the files are, and the jobs
    media/            the files, named by us, never by users
    media/.new/       files that are being written
    lock              held while a server runs

A name leaves `.new` by a rename, after its bytes are on the disk. Which files ought to be there, the database says.
"""

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from .errors import DataFolderInUse, StorageFailed


class DataFolder:
    """The folder at `path`, made if it is not there, and locked until `close`.

    Raises:
        DataFolderInUse: another process has it.
        StorageFailed: it cannot be made, or written to.
    """

    def __init__(self, path: Path) -> None:
        self.database = path / "hemiola.sqlite3"
        self._media = path / "media"
        self._new = self._media / ".new"
        try:
            self._new.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailed(
                f"Results cannot be kept in {path}: {error.strerror}. Choose another folder."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise DataFolderInUse(f"{path} is in use by another server. Choose another folder.") from None

    def path(self, name: str) -> Path:
        """Where the file of that name is."""
        return self._media / name

    def write(self, name: str, fill: Callable[[Path], object]) -> int:
        """Makes a file: `fill` writes it under another name first. Its size in bytes."""
        unfinished = self._new / name
        try:
            fill(unfinished)
            _flush(unfinished)
            nbytes = unfinished.stat().st_size
            unfinished.replace(self.path(name))
        finally:
            unfinished.unlink(missing_ok=True)
        _flush(self._media)
        return nbytes

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files; those that are not there are no error."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def keep_only(self, names: Iterable[str]) -> int:
        """Deletes every file but these: what a killed process left behind. How many there were."""
        known = set(names)
        strays = [file for file in self._new.iterdir() if file.is_file()]
        strays += [file for file in self._media.iterdir() if file.is_file() and file.name not in known]
        for file in strays:
            file.unlink(missing_ok=True)
        return len(strays)

    def close(self) -> None:
        """Lets others have the folder."""
        os.close(self._lock)


def check_data_folder(path: Path) -> None:
    """Whether results can be kept there, asked before a server is started.

    Raises:
        DataFolderInUse, StorageFailed: as `DataFolder`.
    """
    DataFolder(path).close()


def _flush(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
