"""What tests of the whole engine share: folders of tiny models, loaded once, and a thread that may compute."""

from collections.abc import Iterator
from functools import cache

import pytest
import torch

from hemiola.api.engine import Engine
from hemiola.diffusion.families import load_family
from hemiola.llm.loading import load_model

from . import models, rig
from .flights import FLIGHTS

load_family_once, load_model_once = cache(load_family), cache(load_model)


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """Weights are read once for all engines here: a model keeps nothing of a request, so any number may share it.

    Undone after each file: tests elsewhere load from configs, which cannot be keys of a cache.
    """
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hemiola.diffusion.runner.load_family", load_family_once)
        patch.setattr("hemiola.llm.runner.load_model", load_model_once)
        for name in (*rig.KINDS, "reciter"):
            models.folder(name)
        yield


@pytest.fixture(autouse=True)
def computing() -> Iterator[None]:
    """The test's thread computes, as the engine's does."""
    with torch.inference_mode():
        yield


@pytest.fixture(params=FLIGHTS)
def flight(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test once for each way in which steps can be in flight."""
    name: str = request.param
    monkeypatch.setattr(rig, "usual_flight", name)
    return name


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A whole engine on threads of its own, over every kind of tiny model."""
    specs = [f"{name}={models.folder(name)}" for name in (*rig.KINDS, "reciter")]
    with Engine(*specs, memory_bytes=16 << 20, host_bytes=4 << 20, threads=1, max_batch_tokens=64) as made:
        yield made
