"""The benchmark of programs sends them to a server of its own, and leaves no process behind."""

import pytest

from hemiola.api.bench import programs
from hemiola.tests.api.bench.test_http import _children


def test_it_compares_programs_on_a_server_with_the_same_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "ANIMALS", ["fox", "owl"])
    monkeypatch.setattr(programs, "LONG", {"max_tokens": 4})
    before = _children()
    served_s, here_s = programs._served_and_here(repeats=1, threads=1)
    assert served_s > 0 and here_s > 0
    assert _children() == before
