"""A program over many items: bounded concurrency, a bar, and a file of JSON lines from which it can go on."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from hemiola.core.errors import InvalidRequest

from .arguments import check_whole
from .exporting import batch_frame, batch_html, batch_lines, export_batch
from .keeping import MediaFolder, key_of, mark_of, to_line
from .page import fragment
from .run import Branch, Run

log = logging.getLogger(__name__)

One = Callable[[Mapping[str, Any]], Awaitable[Run]]


@dataclass(slots=True)
class BatchItem:
    """What became of one item; `item["name"]` reads `values`.

    Fields:
        arguments: as they were given.
        values: the variables. Pictures and clips are results, or, where a file of results is kept, paths of files.
        forks: the same of each fork.
        run: None where it was read from the file, or the program's function raised.
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


class Batch(list[BatchItem]):
    """All items, in the order in which they were given."""

    @property
    def errors(self) -> dict[int, Exception]:
        """Of the items that failed, by index."""
        return {item.index: item.error for item in self if item.error is not None}

    def export(self, folder: str | Path, *, title: str | None = None) -> Path:
        """Writes a folder that one can look at and pass on: `media`, `items.jsonl`, and `index.html`, a page that needs
        none of the other files.

        Raises:
            InvalidRequest: an item has a value that JSON has no word for.
        """
        return export_batch(self, Path(folder), title)

    def to_jsonl(self, path: str | Path) -> Path:
        """Writes a line of JSON for each item: index, arguments, values, forks, error; media lie in a folder beside."""
        return batch_lines(self, Path(path))

    def to_pandas(self) -> Any:
        """A data frame with a row for each item: a column for each argument, each variable, and the error.

        An argument that is called as a variable is gets the column `arguments.<name>`.

        Raises:
            InvalidRequest: pandas is not installed.
        """
        return batch_frame(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return fragment(batch_html(self))


async def run_items(
    one: One, items: Sequence[Mapping[str, Any]], *, max_concurrency: int, progress: bool, results: Path | None
) -> Batch:
    """See `Program.arun_batch`."""
    max_concurrency = check_whole("max_concurrency", "run_batch", max_concurrency, 1)
    for i, arguments in enumerate(items):
        if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
            text = f"Invalid item {i}: {arguments!r:.80}. Allowed: the program's arguments by name, as a mapping."
            raise InvalidRequest("items", text, "invalid_type")
    done = Batch(BatchItem(i, arguments) for i, arguments in enumerate(items))
    shelf = None if results is None else ResultsFile(results, done)
    free = asyncio.Semaphore(max_concurrency)
    bar = Progress(disable=not progress)
    task = bar.add_task("items", total=len(done))

    async def fill(item: BatchItem) -> None:
        async with free:
            if shelf is None or not shelf.restore(item):
                await _run_one(one, item)
                if shelf is not None and item.error is None:
                    _keep(shelf, item)
        failed = len(done.errors)
        bar.update(task, advance=1, description=f"items, {failed} failed" if failed else "items")

    with bar:
        try:
            async with asyncio.TaskGroup() as group:
                for item in done:
                    group.create_task(fill(item))
        except ExceptionGroup as failures:  # of the file of results: items fail by themselves
            raise failures.exceptions[0] from None
    return done


async def _run_one(one: One, item: BatchItem) -> None:
    try:
        item.run = await one(item.arguments)
        item.run.raise_for_errors()
    except Exception as error:  # whatever the user's function raises is this item's alone
        item.error = error
        return
    item.values = _values(item.run)
    item.forks = [_values(fork) for fork in _all_forks(item.run)]


def _check_arguments(item: BatchItem) -> None:
    try:
        key_of(item.arguments)
    except TypeError as error:
        text = f"Item {item.index} has an argument that no line of JSON can hold, as 'results' needs: {error}"
        raise InvalidRequest("results", text) from error


def _keep(shelf: "ResultsFile", item: BatchItem) -> None:
    try:
        shelf.keep(item)
    except (TypeError, ValueError) as error:  # the latter is of clips with odd sides
        item.error = InvalidRequest("results", f"Item {item.index} has a value that no file can hold: {error}")


def _values(branch: Branch) -> dict[str, Any]:
    return {name: branch[name] for name in branch.names}


def _all_forks(branch: Branch) -> list[Branch]:
    """In order, forks of forks behind each."""
    return [each for fork in branch.forks for each in (fork, *_all_forks(fork))]


class ResultsFile:
    """JSON lines of items that ended well; what is no JSON lies as files in the folder `<name>_files` beside.

    Raises:
        InvalidRequest: the file has other lines than these, or cannot be written, or arguments cannot be compared with
            it.
    """

    def __init__(self, path: Path, items: Sequence[BatchItem]) -> None:
        for item in items:
            _check_arguments(item)
        self._path = path
        self._folder = MediaFolder(path.with_name(f"{path.stem}_files"))
        self._rows: dict[tuple[int, str], dict[str, Any]] = {}
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]  # a last line without an end was cut off while being written
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            for number, line in enumerate(whole.split("\n")[:-1], start=1):  # values may have other line ends in them
                self._read(number, line)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise InvalidRequest("results", f"Invalid 'results': {path} cannot be written: {error}.") from error

    def _read(self, number: int, line: str) -> None:
        try:
            row = json.loads(line)
            self._rows[row["index"], key_of(row["arguments"])] = {"values": row["values"], "forks": row["forks"]}
        except (ValueError, KeyError, TypeError) as error:
            text = f"Line {number} of {self._path} is no result of a batch: {error}."
            raise InvalidRequest("results", text) from error

    def restore(self, item: BatchItem) -> bool:
        """Fills the item, if it is there with the same arguments, and all its files are."""
        row = self._rows.get((item.index, key_of(item.arguments)))
        if row is None:
            return False
        try:
            values, forks = (self._folder.restored(row[name]) for name in ("values", "forks"))
        except FileNotFoundError as error:
            log.warning("Item %d runs again: %s is not there any more.", item.index, error)
            return False
        item.values, item.forks = values, forks
        return True

    def keep(self, item: BatchItem) -> None:
        """Adds a line; the item's pictures and clips become paths.

        Raises:
            TypeError: it has a value that JSON has no word for.
        """
        stem = f"{item.index}-{mark_of(item.arguments)}"
        files = MediaFolder(self._folder.path)
        written = files.written(item.values, stem)
        forks = [files.written(fork, f"{stem}-{i}") for i, fork in enumerate(item.forks)]
        line = to_line({"index": item.index, "arguments": item.arguments, "values": written, "forks": forks})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        item.values = self._folder.restored(written)
        item.forks = [self._folder.restored(fork) for fork in forks]
