"""The step trace keeps the last steps, cheaply, and gives them away unchanged."""

import json
import timeit
from pathlib import Path
from typing import Any

from hemiola.core.step import Work
from hemiola.core.tracing import PhaseTotal, StepRecord, StepTrace, load_json, num_switches, totals


def step(model: str, phase: str, start_s: float, seconds: float = 0.5, **changes: Any) -> StepRecord:
    record = StepRecord(
        lane="main",
        model=model,
        phase=phase,
        rows=1,
        start_s=start_s,
        end_s=start_s + seconds,
        predicted_s=0.4,
        work=Work(rows=1, new_tokens=7),
        request_ids=("r1",),
        quantum="tokens",
    )
    return record._replace(**changes)


def trace_of(*records: StepRecord) -> StepTrace:
    trace = StepTrace()
    for record in records:
        trace.record(record)
    return trace


def test_the_oldest_steps_make_room() -> None:
    trace = StepTrace(capacity=2)
    for i in range(5):
        trace.record(step("chat", "decode", i))
    assert [record.start_s for record in trace] == [3, 4]
    assert len(trace) == 2
    trace.clear()
    assert trace.records == ()


def test_json_gives_the_same_records_back(tmp_path: Path) -> None:
    trace = trace_of(step("chat", "decode", 1.0, rows=2, request_ids=("r1", "r2")), step("image", "denoise", 1.5))
    trace.save_json(tmp_path / "trace.json")
    assert tuple(load_json(tmp_path / "trace.json")) == trace.records


def test_an_empty_trace_can_be_saved(tmp_path: Path) -> None:
    StepTrace().save_json(tmp_path / "trace.json")
    assert load_json(tmp_path / "trace.json") == []
    StepTrace().save_chrome(tmp_path / "chrome.json")
    assert json.loads((tmp_path / "chrome.json").read_text())["traceEvents"] == []


def test_chrome_gets_microseconds_from_the_first_step_and_a_row_per_model(tmp_path: Path) -> None:
    trace = trace_of(
        step("chat", "decode", 10.0, 0.25),
        step("image", "denoise", 10.25, rows=3),
        step("image", "denoise", 11.0, lane="media"),
    )
    trace.save_chrome(tmp_path / "chrome.json")
    events = json.loads((tmp_path / "chrome.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert [(event["ts"], event["dur"]) for event in complete] == [(0, 250e3), (250e3, 500e3), (1e6, 500e3)]
    assert [event["name"] for event in complete] == ["decode", "denoise x3", "denoise"]
    assert complete[0]["args"]["new_tokens"] == 7
    rows = {(event["pid"], event["tid"]) for event in complete}
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert len(rows) == 3 and named == {"main", "media", "chat", "image"}


def test_totals_are_per_model_and_phase_in_order_of_appearance() -> None:
    phases = (("chat", "prefill"), ("chat", "decode"), ("image", "denoise"), ("chat", "decode"))
    records = [step(model, phase, i) for i, (model, phase) in enumerate(phases)]
    assert totals(records) == [
        PhaseTotal("chat", "prefill", 1, 0.5),
        PhaseTotal("chat", "decode", 2, 1.0),
        PhaseTotal("image", "denoise", 1, 0.5),
    ]


def test_switches_are_counted_per_lane_in_order_of_start() -> None:
    one_lane = [step("chat", "decode", 2), step("image", "denoise", 1), step("chat", "decode", 0)]
    assert num_switches(one_lane) == 2
    two_lanes = [step("chat", "decode", 0), step("image", "denoise", 1, lane="media"), step("chat", "decode", 2)]
    assert num_switches(two_lanes) == 0


def test_recording_is_cheap() -> None:
    trace, work, ids = StepTrace(), Work(rows=8), tuple(f"r{i}" for i in range(8))

    def record() -> None:
        trace.record(StepRecord("main", "chat", "decode", 8, 1.0, 2.0, 1.0, work, ids, "tokens"))

    assert min(timeit.repeat(record, number=1000, repeat=20)) / 1000 < 10e-6
