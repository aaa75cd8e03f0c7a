"""Rigs on a GPU: the scenarios of tests/engine with real streams, two lanes and two steps in flight in each."""

import pytest

from hemiola.tests.engine import rig
from hemiola.tests.engine.conftest import computing, loaded_once

__all__ = ["computing", "loaded_once"]


@pytest.fixture(autouse=True)
def flight(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(rig, "usual_flight", "two lanes")
    monkeypatch.setattr(rig, "usual_device", "cuda:0")
    return "two lanes"
