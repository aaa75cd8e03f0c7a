"""A program over many items: bounded concurrency, a bar, and a file of JSON lines from which it can go on."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from rich.progress import Progress

from hemiola.core.errors import InvalidRequest

from ..results import ImageResult, VideoResult
from .run import Branch, Run

One = Callable[[Mapping[str, Any]], Awaitable[Run]]


@dataclass(slots=True)
class BatchItem:
    """What became of one item; `item["name"]` reads `values`.

    Fields:
        arguments: as they were given.
        values: the variables. Pictures and clips are results, or, where a file of results is kept, paths of files.
        forks: the same of each fork.
        run: None where it was read from the file, or failed.
        error: what the program, or its first failed node, raised.
    """

    index: int
    arguments: Mapping[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    forks: list[dict[str, Any]] = field(default_factory=list)
    run: Run | None = None
    error: Exception | None = None

    def __getitem__(self, name: str) -> Any:
        if self.error is not None:
            raise self.error
        return self.values[name]


async def run_items(
    one: One, items: Sequence[Mapping[str, Any]], *, max_concurrency: int, progress: bool, results: Path | None
) -> list[BatchItem]:
    """See `Program.arun_batch`."""
    if max_concurrency < 1:
        raise InvalidRequest("max_concurrency", f"Invalid 'max_concurrency': {max_concurrency}. Allowed: 1 or more.")
    shelf = None if results is None else ResultsFile(results)
    done = [BatchItem(i, arguments) for i, arguments in enumerate(items)]
    free = asyncio.Semaphore(max_concurrency)
    bar = Progress(disable=not progress)
    task = bar.add_task("items", total=len(done))

    async def fill(item: BatchItem) -> None:
        async with free:
            if shelf is None or not shelf.restore(item):
                await _run_one(one, item)
                if shelf is not None and item.error is None:
                    _keep(shelf, item)
        bar.advance(task)

    with bar:
        async with asyncio.TaskGroup() as group:
            for item in done:
                group.create_task(fill(item))
    return done


async def _run_one(one: One, item: BatchItem) -> None:
    try:
        item.run = (await one(item.arguments)).raise_for_errors()
    except Exception as error:  # whatever the user's function raises is this item's alone
        item.error = error
        return
    item.values = _values(item.run)
    item.forks = [_values(fork) for fork in _all_forks(item.run)]


def _keep(shelf: "ResultsFile", item: BatchItem) -> None:
    try:
        shelf.keep(item)
    except TypeError as error:
        item.error = InvalidRequest("results", f"Item {item.index} has a value that no line of JSON can hold: {error}")


def _values(branch: Branch) -> dict[str, Any]:
    return {name: branch[name] for name in branch.names}


def _all_forks(branch: Branch) -> list[Branch]:
    """In order, forks of forks behind each."""
    return [each for fork in branch.forks for each in (fork, *_all_forks(fork))]


class ResultsFile:
    """JSON lines of items that ended well; what is no JSON lies as files in the folder `<name>_files` beside.

    Raises:
        InvalidRequest: the file has other lines than these.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.with_name(f"{path.stem}_files")
        self._rows: dict[tuple[int, str], dict[str, Any]] = {}
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]  # a last line without an end was cut off while being written
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            for number, line in enumerate(whole.splitlines(), start=1):
                self._read(number, line)

    def _read(self, number: int, line: str) -> None:
        try:
            row = json.loads(line)
            self._rows[row["index"], _key(row["arguments"])] = {"values": row["values"], "forks": row["forks"]}
        except (ValueError, KeyError, TypeError) as error:
            text = f"Line {number} of {self._path} is no result of a batch: {error}."
            raise InvalidRequest("results", text) from error

    def restore(self, item: BatchItem) -> bool:
        """Fills the item, if it is there with the same arguments."""
        row = self._rows.get((item.index, _key(item.arguments)))
        if row is None:
            return False
        item.values = self._restored(row["values"])
        item.forks = [self._restored(fork) for fork in row["forks"]]
        return True

    def keep(self, item: BatchItem) -> None:
        """Adds a line; the item's pictures and clips become paths."""
        written = self._written(item.values, f"{item.index}")
        forks = [self._written(fork, f"{item.index}-{i}") for i, fork in enumerate(item.forks)]
        row = {"index": item.index, "arguments": item.arguments, "values": written, "forks": forks}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")
        item.values = self._restored(written)
        item.forks = [self._restored(fork) for fork in forks]

    def _written(self, value: Any, stem: str) -> Any:
        """The same with `{"$file": name}` for what was written to a file."""
        if isinstance(value, dict):
            return {key: self._written(each, f"{stem}-{key}") for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._written(each, f"{stem}-{i}") for i, each in enumerate(value)]
        if isinstance(value, ImageResult) and len(value.pictures) > 1:
            return [self._saved(picture, f"{stem}-{i}.png") for i, picture in enumerate(value)]
        if isinstance(value, ImageResult):
            return self._saved(value, f"{stem}.png")
        if isinstance(value, VideoResult):
            return self._saved(value, f"{stem}.mp4")
        return value

    def _saved(self, media: Any, name: str) -> dict[str, str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
        media.save(self._folder / safe)
        return {"$file": safe}

    def _restored(self, value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$file"}:
                return self._folder / value["$file"]
            return {key: self._restored(each) for key, each in value.items()}
        return [self._restored(each) for each in value] if isinstance(value, list) else value


def _key(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON does not know: dataclasses, structs and pydantic models by their fields.

    Raises:
        TypeError: something else.
    """
    dump = getattr(value, "model_dump", None)
    return dump() if dump is not None else msgspec.to_builtins(value)
