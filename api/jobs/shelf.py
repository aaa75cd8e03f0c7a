"""Pictures that are kept for a while, to be fetched by URL. Calls block: coroutines make them on threads."""

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .encode import MEDIA_TYPES, PictureFormat
from .errors import ResultNotFound
from .folder import DataFolder
from .limits import JobLimits
from .records import StoredFile
from .store import ResultStore


class PictureShelf:
    """Sets of pictures by id; a picture of a set by its index."""

    def __init__(self, store: ResultStore, folder: DataFolder, limits: JobLimits) -> None:
        self._store = store
        self._folder = folder
        self._limits = limits

    def check_room(self, count: int, nbytes: int) -> None:
        """Raises QuotaExceeded unless so many more may be kept; asked before they are made."""
        self._store.check_pictures(count, nbytes)

    def add(self, pictures: Sequence[bytes], picture_format: PictureFormat) -> str:
        """Keeps encoded pictures; the id of their set.

        Raises:
            QuotaExceeded: there is no room (any more).
        """
        set_id = f"image_{uuid.uuid4().hex}"
        expires_at = self._store.clock() + self._limits.keep_pictures_s
        files = []
        for i, data in enumerate(pictures):
            name = f"{set_id}-{i}.{picture_format}"
            nbytes = self._folder.write(name, partial(_write, data))
            files.append(
                StoredFile(
                    owner=set_id,
                    variant=str(i),
                    name=name,
                    media_type=MEDIA_TYPES[picture_format],
                    nbytes=nbytes,
                    expires_at=expires_at,
                )
            )
        try:
            self._store.add_pictures(files)
        except BaseException:
            self._folder.remove(file.name for file in files)
            raise
        return set_id

    def find(self, set_id: str, variant: str) -> tuple[StoredFile, Path]:
        """A picture, and where it is.

        Raises:
            ResultNotFound: it is not there (any more).
        """
        file = self._store.file(set_id, variant)
        if file is None:
            raise ResultNotFound("image", f"There is no image '{set_id}' with variant '{variant}', or it has expired.")
        return file, self._folder.path(file.name)


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)
