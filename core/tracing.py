"""The step trace: which step of which requests ran when, on which lane, and how long it had been predicted to take.

A ring buffer that the loop writes one record into per collected step (about a microsecond). Exports JSON and Chrome's
trace format (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, shown by
chrome://tracing and Perfetto). `core.timeline` draws it. Knows no torch, no models, no policies.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from .step import Work


class StepRecord(NamedTuple):
    """One step that ran.

    Fields:
        lane, model, phase: where it ran, of which model, and what it is called ("prefill", "decode", "denoise", ...).
        rows: states in the batch.
        start_s, end_s: on the engine's clock; end minus start is device time where the lane knows it.
        predicted_s: what the cost model had said before.
        work: summed over rows.
        request_ids: of the rows.
        quantum: which kind of quantum it was: "tokens", "blocks" or "whole".
        sm_share: of the device's SMs; 1.0 on a CPU.
    """

    lane: str
    model: str
    phase: str
    rows: int
    start_s: float
    end_s: float
    predicted_s: float
    work: Work
    request_ids: tuple[str, ...]
    quantum: str
    sm_share: float = 1.0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


class StepTrace:
    """The last `capacity` steps, some 0.7 KB each with twenty rows. Written by the loop's thread, read by any."""

    def __init__(self, capacity: int = 16_384) -> None:
        self._records: deque[StepRecord] = deque(maxlen=capacity)

    def record(self, step: StepRecord) -> None:
        self._records.append(step)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[StepRecord]:
        return iter(self.records)

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """A copy, oldest first, in order of collection."""
        return tuple(self._records.copy())

    def since(self, time_s: float) -> tuple[StepRecord, ...]:
        """The steps that ended after `time_s`, in order of collection."""
        recent = list(takewhile(lambda record: record.end_s > time_s, reversed(self._records.copy())))
        return tuple(recent[::-1])

    def clear(self) -> None:
        """Forgets everything, for instance what warming up ran."""
        self._records.clear()

    def save_json(self, path: str | Path) -> None:
        """Writes a list of objects, one a step, with StepRecord's fields."""
        rows = [record._asdict() | {"work": record.work._asdict()} for record in self.records]
        Path(path).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")

    def save_chrome(self, path: str | Path) -> None:
        """Writes Chrome's trace format: a process per lane, a thread per model, times in microseconds."""
        events = chrome_events(self.records)
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")


def load_json(path: str | Path) -> list[StepRecord]:
    """What `save_json` wrote."""
    rows = json.loads(Path(path).read_text(encoding="utf-8"))
    return [StepRecord(**row | {"work": Work(**row["work"]), "request_ids": tuple(row["request_ids"])}) for row in rows]


def chrome_events(records: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """Complete ("X") events, counted from the first start, and the names of their lanes and models."""
    origin_s = min((record.start_s for record in records), default=0.0)
    lanes = list(dict.fromkeys(record.lane for record in records))
    models = list(dict.fromkeys((record.lane, record.model) for record in records))
    names = [_name_event("process_name", lanes.index(lane), 0, lane) for lane in lanes]
    names += [_name_event("thread_name", lanes.index(lane), i, model) for i, (lane, model) in enumerate(models)]
    return names + [
        {
            "ph": "X",
            "name": record.phase if record.rows == 1 else f"{record.phase} x{record.rows}",
            "cat": record.phase,
            "pid": lanes.index(record.lane),
            "tid": models.index((record.lane, record.model)),
            "ts": round((record.start_s - origin_s) * 1e6, 3),
            "dur": round(record.seconds * 1e6, 3),
            "args": {
                "rows": record.rows,
                "quantum": record.quantum,
                "predicted_ms": round(record.predicted_s * 1e3, 3),
                "requests": list(record.request_ids),
                **{name: value for name, value in record.work._asdict().items() if value and name != "rows"},
            },
        }
        for record in records
    ]


class PhaseTotal(NamedTuple):
    """All steps of one phase of one model."""

    model: str
    phase: str
    num_steps: int
    seconds: float


def totals(records: Iterable[StepRecord]) -> list[PhaseTotal]:
    """Steps and seconds per model and phase, in order of first appearance."""
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records:
        seconds[record.model, record.phase].append(record.seconds)
    return [PhaseTotal(*key, len(each), sum(each)) for key, each in seconds.items()]


def num_switches(records: Sequence[StepRecord]) -> int:
    """How often a lane went from one model to another: the interleaving in one number."""
    switches = 0
    last_on_lane: dict[str, str] = {}
    for record in sorted(records, key=lambda record: record.start_s):
        switches += last_on_lane.get(record.lane, record.model) != record.model
        last_on_lane[record.lane] = record.model
    return switches


def _name_event(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
