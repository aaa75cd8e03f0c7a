"""Values as JSON with files beside it: pictures and clips become files, and `{"$file": name}` where they were."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..results import ImageResult, Picture, VideoResult

_FILE, _ERROR = "$file", "$error"
_LONGEST_STEM = 160  # bytes: file systems take 255 for a name


class MediaFolder:
    """A folder of files that JSON beside it speaks of. It is made when the first file is written.

    A picture that comes again, such as a fork's that it has from before it was forked, is written once. Different ones
    get different files, also where their names are the same in what file systems can say.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: dict[int, tuple[Any, str]] = {}  # by identity; the object is held, so that no other takes it
        self._taken: set[str] = set()  # names of files, in small letters

    def written(self, value: Any, stem: str) -> Any:
        """The same, with a file called after `stem` for each picture and clip, and words for each error."""
        if isinstance(value, Mapping):
            return {key: self.written(each, f"{stem}-{key}" if stem else str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.written(each, f"{stem}-{i}") for i, each in enumerate(value)]
        if isinstance(value, ImageResult) and len(value.pictures) > 1:
            return self.written(value.pictures, stem)
        if isinstance(value, ImageResult | Picture):
            return self._saved(value, f"{stem}.png")
        if isinstance(value, VideoResult):
            return self._saved(value, f"{stem}.mp4")
        if isinstance(value, Path) and value.is_file():
            return self._copied(value, f"{stem}{value.suffix}")
        return {_ERROR: str(value)} if isinstance(value, Exception) else value

    def restored(self, value: Any) -> Any:
        """What was written, with paths for files.

        Raises:
            FileNotFoundError: a file is not there any more.
        """
        if isinstance(value, dict):
            if set(value) == {_FILE}:
                return self._found(value[_FILE])
            return {key: self.restored(each) for key, each in value.items()}
        return [self.restored(each) for each in value] if isinstance(value, list) else value

    def _saved(self, media: ImageResult | Picture | VideoResult, name: str) -> dict[str, str]:
        if id(media) not in self._written:
            free = self._free(name)
            media.save(self._place(free))
            self._written[id(media)] = media, free
        return {_FILE: self._written[id(media)][1]}

    def _copied(self, file: Path, name: str) -> dict[str, str]:
        free = self._free(name)
        if file.resolve() != self._place(free).resolve():
            shutil.copyfile(file, self._place(free))
        return {_FILE: free}

    def _free(self, name: str) -> str:
        """The name as a file's that nothing else has here."""
        stem, _, kind = _safe(name).rpartition(".")
        stem = stem.encode()[:_LONGEST_STEM].decode(errors="ignore")
        free, number = f"{stem}.{kind}", 1
        while free.casefold() in self._taken:
            number += 1
            free = f"{stem}-{number}.{kind}"
        self._taken.add(free.casefold())
        return free

    def _place(self, name: str) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / name

    def _found(self, name: str) -> Path:
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(path)
        return path


def _safe(name: str) -> str:
    """The name without what file systems mind."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def to_line(value: Any) -> str:
    """One line of JSON.

    Raises:
        TypeError: there is something in it that JSON has no word for.
    """
    return json.dumps(value, ensure_ascii=False, default=_plain) + "\n"


def key_of(arguments: Mapping[str, Any]) -> str:
    """The same for the same arguments, in whatever order."""
    return json.dumps(arguments, sort_keys=True, default=_plain)


def mark_of(arguments: Mapping[str, Any]) -> str:
    """Eight characters that tell arguments from others."""
    return hashlib.sha256(key_of(arguments).encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    """What JSON does not know: paths as text; dataclasses, structs and pydantic models by their fields.

    Raises:
        TypeError: something else.
    """
    if isinstance(value, Path):
        return str(value)
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value)
