"""What is refused before or while models are loaded, and how it is said."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hemiola import Engine, HemiolaError
from hemiola.core.errors import CannotFit, CorruptWeights, InvalidRequest, ModelNotFound, UnsupportedModel
from hemiola.core.hub import resolve

CHAT = "hemiola-tiny-chat"


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """A copy of the built-in chat model that may be broken."""
    folder = tmp_path / "broken"
    shutil.copytree(resolve(CHAT).path, folder)
    return folder


def refused(*models: str | Path, **options: Any) -> HemiolaError:
    with pytest.raises(HemiolaError) as caught:
        Engine(*models, threads=1, **options)
    return caught.value


def test_a_model_that_is_nowhere() -> None:
    error = refused("no/such-model")
    assert isinstance(error, ModelNotFound)
    assert "no/such-model" in error.message and "Looked for" in error.message


def test_more_memory_than_there_is() -> None:
    error = refused(CHAT, memory_bytes=1 << 50)
    assert isinstance(error, CannotFit)
    assert error.bytes_needed > 1 << 50 > error.bytes_available > 0


def test_an_arena_too_small_for_the_pages_of_a_model() -> None:
    assert isinstance(refused(CHAT, memory_bytes=100_000), CannotFit)


def test_truncated_weights(chat: Path) -> None:
    weights = chat / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    error = refused(chat)
    assert isinstance(error, CorruptWeights) and "model.safetensors" in error.message


def test_weights_of_another_shape(chat: Path) -> None:
    config = json.loads((chat / "config.json").read_text())
    (chat / "config.json").write_text(json.dumps(config | {"intermediate_size": 512}))
    assert isinstance(refused(chat), CorruptWeights)


def test_an_architecture_that_nobody_knows(chat: Path) -> None:
    config = json.loads((chat / "config.json").read_text())
    (chat / "config.json").write_text(
        json.dumps(config | {"architectures": ["OracleForCausalLM"], "model_type": "oracle"})
    )
    error = refused(chat)
    assert isinstance(error, UnsupportedModel) and "oracle" in error.message.lower()


def test_a_policy_or_device_that_does_not_exist() -> None:
    assert isinstance(refused(CHAT, policy="chaos"), InvalidRequest)
    assert isinstance(refused(CHAT, device="abacus"), InvalidRequest)


def test_two_models_of_one_name() -> None:
    error = refused(CHAT, f"{CHAT}={resolve(CHAT).path.parent / 'hemiola-tiny-image'}")
    assert isinstance(error, InvalidRequest) and CHAT in error.message


def test_one_folder_served_under_a_name_of_its_own() -> None:
    with Engine(f"mine={resolve(CHAT).path}", threads=1) as engine:
        assert engine.chat("Hi!", model="mine", max_tokens=4).model == "mine"
        with pytest.raises(ModelNotFound, match="mine"):
            engine.chat("Hi!", model=CHAT)
        with pytest.raises(InvalidRequest, match="Served"):
            engine.image("a fox")


def test_options_that_do_not_exist_are_named_with_the_nearest() -> None:
    with Engine(CHAT, threads=1) as engine:
        with pytest.raises(InvalidRequest, match="Did you mean 'temperature'"):
            engine.chat("Hi!", temprature=1.0)
        with pytest.raises(InvalidRequest, match="There is no option 'width'"):
            engine.complete("Hi!", width=3)
