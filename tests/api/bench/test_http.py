"""The benchmark over HTTP starts a server, compares, and leaves no process behind."""

import os
from pathlib import Path

import pytest

from hemiola.api.bench import http


def test_it_compares_a_server_with_the_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "NUM_STREAMS", 2)
    monkeypatch.setattr(http, "NUM_TOKENS", 4)
    before = _children()
    report = http.run(repeats=1, threads=1)
    many, one = report.scenarios
    assert (many.target, one.target) == (http.TARGET, None)
    assert all(s.figure > 0 and s.baseline > 0 and s.ratio == s.figure / s.baseline for s in report.scenarios)
    assert _children() == before


def _children() -> set[str]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}
