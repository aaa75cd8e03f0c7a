"""What an engine is made of is checked before any model is looked at: models' names, options and their values."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from hemiola.api import compose
from hemiola.api.engine import Engine
from hemiola.api.engine_process import sized
from hemiola.api.http.settings import BOUNDS as SETTINGS_BOUNDS
from hemiola.api.http.settings import Settings
from hemiola.api.jobs.limits import BOUNDS as JOB_BOUNDS
from hemiola.api.jobs.limits import JobLimits
from hemiola.api.served import ServedEngine
from hemiola.core.bounds import Bounds, number_fields
from hemiola.core.config import EngineConfig
from hemiola.core.errors import EngineDied, InvalidRequest

TINY = "dummy:llama-tiny"


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is looked at."""

    def look(*_: object, **__: object) -> None:
        raise AssertionError("a model was looked at")

    monkeypatch.setattr(compose, "plan", look)
    monkeypatch.setattr("hemiola.api.served.resolve_all", look)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("make", [Engine, ServedEngine])
@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        ({"foo": 1}, "foo", ["There is no option 'foo'", "Allowed: activation_bytes, config, device"]),
        ({"memory_mib": 64}, "memory_mib", ["There is no option 'memory_mib'", "memory_bytes"]),
        ({"thread": 1}, "thread", ["Did you mean 'threads'"]),
        ({"threads": "2"}, "threads", ["Invalid 'threads': '2'", "from 1 to 1,024"]),
        ({"prefix_cache": "no"}, "prefix_cache", ["Invalid 'prefix_cache': 'no'", "True or False"]),
        ({"config": {"threads": 1}}, "config", ["Invalid 'config': {'threads': 1}", "an EngineConfig"]),
    ],
)
def test_options_are_named_with_what_is_allowed(
    make: Callable[..., object], options: dict[str, Any], param: str, words: list[str]
) -> None:
    """An unknown one was a TypeError of `dataclasses.replace`."""
    with pytest.raises(InvalidRequest) as caught:
        make(TINY, **options)
    assert caught.value.param == param
    assert all(word in caught.value.message for word in words), caught.value.message


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("make", [Engine, ServedEngine])
@pytest.mark.parametrize("model", [None, 5, b"chat", ["chat"], ("a", "b"), {"chat": "folder"}])
def test_a_model_is_a_name_or_a_path(make: Callable[..., object], model: object) -> None:
    """None was looked for as 'None', and a list was 'unhashable'."""
    with pytest.raises(InvalidRequest, match="Allowed: names as strings, and folders as strings or paths") as caught:
        make(TINY, model)
    assert caught.value.param == "models" and caught.value.message.startswith(f"Invalid 'models': {model!r}.")
    assert ("Engine('a', 'b')" in caught.value.message) == isinstance(model, list | tuple)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory_fraction": float("nan")}, "'memory_fraction': nan. Allowed: a number above 0 and at most 1 or None"),
        ({"memory_fraction": "half"}, "'memory_fraction': 'half'"),
        ({"memory_fraction": 0}, "'memory_fraction': 0"),
        ({"max_queue": 0}, "'max_queue': 0. Allowed: a whole number from 1 to"),
        ({"max_queue": None}, "'max_queue': None"),
    ],
)
def test_the_fronts_own_options_are_checked_as_well(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Invalid {words}"):
        ServedEngine(TINY, **options)


@pytest.mark.parametrize(
    ("kind", "field", "words"),
    [
        (Settings, {"api_keys": "secret"}, "'api_keys': 'secret'. Allowed: a tuple, each of it a string."),
        (Settings, {"admin_keys": (1,)}, "'admin_keys': (1,). "),
        (Settings, {"aliases": ["gpt"]}, "'aliases': ['gpt']. Allowed: a Mapping."),
        (Settings, {"strict_params": "no"}, "'strict_params': 'no'. Allowed: True or False."),
        (
            Settings,
            {"reasoning_field": "thoughts"},
            "'reasoning_field': 'thoughts'. Allowed: 'reasoning_content', ",
        ),
        (Settings, {"max_body_bytes": 10**30}, "'max_body_bytes': 1000"),
        (
            Settings,
            {"keep_alive_s": math.nan},
            "'keep_alive_s': nan. Allowed: a number above 0 and at most 86,400.",
        ),
        (Settings, {"retry_after_s": 1.5}, "'retry_after_s': 1.5. Allowed: a whole number from 1 to 86,400."),
        (Settings, {"data_dir": None}, "'data_dir': None. Allowed: a Path."),
        (Settings, {"jobs": 5}, "'jobs': 5. Allowed: a JobLimits."),
        (JobLimits, {"keep_videos_s": math.nan}, "'keep_videos_s': nan. Allowed: a number from 1 to "),
        (JobLimits, {"keep_pictures_s": 60}, "'keep_pictures_s': 60. Allowed: a number from 3,600.0 to "),
        (JobLimits, {"max_running": 0}, "'max_running': 0. Allowed: a whole number from 1 to "),
        (JobLimits, {"max_bytes": "1"}, "'max_bytes': '1'. Allowed: a whole number from 0 to "),
    ],
)
def test_a_servers_settings_are_checked_in_the_same_way(
    kind: Callable[..., object], field: dict[str, Any], words: str
) -> None:
    """A string of keys was a key for each of its letters."""
    with pytest.raises(InvalidRequest) as caught:
        kind(**field)
    assert caught.value.message.startswith(f"Invalid {words}")


@pytest.mark.parametrize(("kind", "bounds"), [(Settings, SETTINGS_BOUNDS), (JobLimits, JOB_BOUNDS)])
def test_all_numbers_of_a_server_have_bounds(kind: type, bounds: dict[str, Bounds]) -> None:
    assert set(bounds) == number_fields(kind)


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "tpu:1", "cuda:x"])
def test_a_share_of_a_device_that_is_not_here_is_refused_by_name(device: str) -> None:
    """torch was asked for it and said what it liked."""
    with pytest.raises(InvalidRequest, match=f"Invalid 'device': '{device}'. Allowed: auto, cpu"):
        sized(EngineConfig(device=device), 0.5)


def test_a_closed_engine_says_that_it_was_closed() -> None:
    """It said that it was not running, and a `with` over it began as if nothing were amiss."""
    engine = Engine(TINY, threads=1)
    engine.close()
    with pytest.raises(EngineDied, match="The engine was closed"):
        engine.complete("Hi")
    with pytest.raises(EngineDied, match="The engine was closed"):
        engine.__enter__()


def test_a_closed_served_engine_is_not_started_again() -> None:
    engine = ServedEngine(TINY)
    engine.close()
    with pytest.raises(EngineDied, match="The engine was closed"):
        engine.__enter__()
