"""Finished runs and batches as files: a folder with media, JSON and a page to look at; JSON lines; a data frame."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from hemiola.core.errors import InvalidRequest

from .keeping import MediaFolder, to_line
from .page import branch_html, details, document, sections, value_html
from .record import BranchRecord


class Exported(Protocol):
    """What a run has to tell; see `Run`."""

    id: str
    seconds: float

    @property
    def record(self) -> BranchRecord: ...

    def trace(self) -> Any: ...


class ExportedItem(Protocol):
    """What an item of a batch has to tell; see `BatchItem`."""

    index: int
    arguments: Mapping[str, Any]
    values: dict[str, Any]
    forks: list[dict[str, Any]]
    run: Any
    error: Exception | None


def export_run(run: Exported, folder: Path, title: str | None) -> Path:
    """See `Run.export`."""
    files = MediaFolder(folder)
    trace = run.trace()
    _write(folder, "run.json", {"id": run.id, "seconds": run.seconds, **_written(run.record, files)})
    _write(folder, "trace.json", trace.to_json() + "\n")
    svg = trace.draw(folder / "trace.svg")
    body = f'<p class="faint">{_summary(run)}</p>{branch_html(run.record)}'
    body += details("What ran when", [svg])
    _write(folder, "index.html", document(title or f"Run {run.id}", body))
    return folder


def export_batch(items: Sequence[ExportedItem], folder: Path, title: str | None) -> Path:
    """See `Batch.export`."""
    files = MediaFolder(folder / "media")
    _write(folder, "items.jsonl", [_row(item, files) for item in items])
    _write(folder, "index.html", document(title or "Batch", batch_html(items)))
    return folder


def batch_html(items: Sequence[ExportedItem]) -> str:
    """Every item under its arguments."""
    failed = sum(item.error is not None for item in items)
    return f'<p class="faint">{len(items)} items, {failed} failed</p>{sections(map(_section, items))}'


def run_lines(run: Exported, path: Path) -> Path:
    """See `Run.to_jsonl`."""
    files = MediaFolder(path.with_name(f"{path.stem}_files"))
    rows = [{"branch": each.branch, "values": files.written(each.values, _stem(each))} for each in run.record.walk()]
    return _write(path.parent, path.name, rows)


def batch_lines(items: Sequence[ExportedItem], path: Path) -> Path:
    """See `Batch.to_jsonl`."""
    files = MediaFolder(path.with_name(f"{path.stem}_files"))
    return _write(path.parent, path.name, [_row(item, files) for item in items])


def run_frame(run: Exported) -> Any:
    """See `Run.to_pandas`."""
    return _frame([{"branch": each.branch, **each.values} for each in run.record.walk()], "branch")


def batch_frame(items: Sequence[ExportedItem]) -> Any:
    """See `Batch.to_pandas`."""
    rows = []
    for item in items:
        arguments = {f"arguments.{k}" if k in item.values else k: v for k, v in item.arguments.items()}
        rows.append({"index": item.index, **arguments, **item.values, "error": item.error})
    return _frame(rows, "index")


def _frame(rows: Iterable[Mapping[str, Any]], index: str) -> Any:
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        text = "'to_pandas' needs pandas, which is not installed: pip install pandas. 'to_jsonl' needs nothing."
        raise InvalidRequest("to_pandas", text) from error
    frame = pandas.DataFrame(list(rows))
    return frame.set_index(index) if len(frame) else frame


def _written(record: BranchRecord, files: MediaFolder) -> dict[str, Any]:
    scores = {
        name: [{"choice": each.choice, "logprobs": each.logprobs} for each in scores]
        for name, scores in record.scores.items()
    }
    return {
        "branch": record.branch,
        "values": files.written(record.values, _stem(record)),
        "messages": record.said,
        "text": record.text,
        "scores": scores,
        "forks": [_written(fork, files) for fork in record.forks],
    }


def _row(item: ExportedItem, files: MediaFolder) -> dict[str, Any]:
    stem = f"{item.index}"
    return {
        "index": item.index,
        "arguments": item.arguments,
        "values": files.written(item.values, stem),
        "forks": [files.written(fork, f"{stem}-{i}") for i, fork in enumerate(item.forks)],
        "error": None if item.error is None else str(item.error),
    }


def _section(item: ExportedItem) -> tuple[str, str]:
    title = f"{item.index}: " + ", ".join(f"{name}={value!r}" for name, value in item.arguments.items())
    if item.run is not None:
        return title, branch_html(item.run.record)
    if item.error is not None:
        return title, f'<figure class="error">{value_html(item.error)}</figure>'
    forks = tuple(BranchRecord(str(i), _own(fork, item.values), (), None, {}, ()) for i, fork in enumerate(item.forks))
    return title, branch_html(BranchRecord("", item.values, (), None, {}, forks))


def _own(fork: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Without what it only has because it was forked from there."""
    return {name: value for name, value in fork.items() if name not in before or before[name] != value}


def _summary(run: Exported) -> str:
    nodes = run.trace().nodes
    failed = sum(node.error is not None for node in nodes)
    return f"{len(nodes)} calls in {run.seconds:.1f} s" + (f", {failed} failed" if failed else "")


def _stem(record: BranchRecord) -> str:
    """What a branch's files begin with: nothing for the program itself."""
    return record.branch.replace(".", "-")


def _write(folder: Path, name: str, value: str | Mapping[str, Any] | Sequence[Any]) -> Path:
    """A text as it is, an object as JSON, several as lines of JSON.

    Raises:
        InvalidRequest: there is something in them that JSON has no word for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    try:
        text = value if isinstance(value, str) else "".join(map(to_line, [value] if isinstance(value, dict) else value))
    except TypeError as error:
        raise InvalidRequest(name, f"'{name}' cannot hold one of the values: {error}.") from error
    path.write_text(text, encoding="utf-8")
    return path
