"""What is refused before or while models are loaded, and how it is said."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hemiola import Engine, HemiolaError
from hemiola.api import compose
from hemiola.api.compose import media_need
from hemiola.core.config import EngineConfig, Environment, Machine, ResolvedConfig
from hemiola.core.config import resolve as resolve_config
from hemiola.core.errors import CannotFit, CorruptWeights, InvalidRequest, ModelNotFound, UnsupportedModel
from hemiola.core.hub import check_weights, resolve

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


def test_more_memory_than_there_is_says_which_option_to_lower_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message named none."""
    monkeypatch.setattr(compose, "available_host_bytes", lambda: 500 << 20)
    sizes: dict[str, Any] = {"memory_bytes": 400 << 20, "host_bytes": 200 << 20}
    error = refused(CHAT, **sizes)
    found = re.search(r"Lower the engine's 'memory_bytes' or 'host_bytes', by ([\d,]+) MiB in all\.$", error.message)
    assert found is not None, error.message
    less = int(found[1].replace(",", "")) << 20
    assert compose.plan((CHAT,), EngineConfig(**sizes | {"memory_bytes": sizes["memory_bytes"] - less})).served
    with pytest.raises(CannotFit):
        compose.plan((CHAT,), EngineConfig(**sizes | {"memory_bytes": sizes["memory_bytes"] - less + (1 << 20)}))


@pytest.mark.parametrize(("dtype", "is_named"), [("auto", True), ("bfloat16", False)])
def test_weights_that_no_smaller_arena_helps(monkeypatch: pytest.MonkeyPatch, dtype: str, is_named: bool) -> None:
    monkeypatch.setattr(compose, "available_host_bytes", lambda: 8 << 30)
    message = refused("dummy:llama-8b", dtype=dtype).message
    assert "weights alone take" in message and "fewer or smaller models" in message and "'memory_bytes'" not in message
    assert ("'bfloat16' as the engine's 'dtype'" in message) is is_named


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


def test_shapes_are_served_with_random_weights_beside_models_that_have_files() -> None:
    with Engine(CHAT, "dummy:llama-tiny", "z=dummy:z-image-tiny", "dummy:wan-tiny", threads=1) as engine:
        assert engine.loads.weights["dummy:llama-tiny"].num_params == 1_868_416
        asked = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
        noise = [engine.complete("Hello", model="dummy:llama-tiny", **asked).answers[0].token_ids for _ in range(2)]
        assert noise[0] == noise[1] and len(noise[0]) == 8
        assert "Paris" in engine.chat("What is the capital of France?", model=CHAT, temperature=0.0).text
        assert engine.image("a fox", model="z").pictures[0].image.size == (64, 64)
        assert engine.video("a fox").array.shape == (5, 64, 64, 3)


def test_random_weights_are_counted_where_memory_is_planned() -> None:
    error = refused("dummy:llama-8b", memory_bytes=1 << 50)
    assert isinstance(error, CannotFit) and error.bytes_needed > (1 << 50) + 8_030_000_000
    assert "dummy:llama-8b" in error.message


def test_any_model_can_be_served_with_random_weights_instead_of_its_own(chat: Path) -> None:
    (chat / "model.safetensors").unlink()
    with Engine(chat, load_format="dummy", threads=1) as engine:
        assert engine.loads.weights["broken"].num_params == check_weights(resolve(CHAT)).num_params
        assert len(engine.complete("Hi", max_tokens=4, ignore_eos=True).answers[0].token_ids) == 4


def test_memory_is_kept_for_the_pipelines_that_are_served() -> None:
    config = resolve_config(EngineConfig(dtype="bfloat16"), Machine(num_cores=2), environment=Environment())
    llama, flux, wan = (resolve(f"dummy:{name}") for name in ("llama-8b", "flux-dev", "wan-1.3b"))
    assert media_need([llama], config) is None
    pictures, clips, both = (media_need(served, config) for served in ((flux,), (wan,), (flux, wan)))
    assert pictures is not None and clips is not None and both is not None
    assert both.activation_bytes == max(pictures.activation_bytes, clips.activation_bytes)
    assert both.graph_bytes == max(pictures.graph_bytes, clips.graph_bytes)
    beside_text = media_need((llama, flux, wan), config)
    assert beside_text is not None, "steps of media may then run on a share of the SMs, which has a cache of its own"
    assert beside_text.activation_bytes == 2 * both.activation_bytes


def test_a_small_gpu_keeps_memory_for_the_lanes_that_are_served_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat model was refused on 16 GiB, and an arena of half of 24 GiB, for what the largest pictures would take."""

    def plan_on(gib: int, **options: Any) -> ResolvedConfig:
        machine = Machine(2, ("a GPU",), (gib << 30,))
        monkeypatch.setattr(compose, "this_machine", lambda device=None: machine)
        return compose.plan((CHAT,), EngineConfig(**options)).config

    small = plan_on(16)
    assert list(small.activations) == ["language"] and small.memory_bytes > 8 << 30
    assert plan_on(24, memory_bytes=12 << 30).memory_bytes == 12 << 30
    with pytest.raises(CannotFit):
        plan_on(24, memory_bytes=19 << 30)


def test_requests_beyond_the_declared_limits_are_refused_by_name() -> None:
    with Engine("dummy:wan-tiny", threads=1, max_frame_pixels=64 * 64, max_frames=5) as engine:
        with pytest.raises(InvalidRequest, match=r"'size': 64x128, which are 8,192 pixels.*4,096 .*'max_frame_pixels'"):
            engine.video("a fox", size="64x128")
        with pytest.raises(InvalidRequest, match=r"'num_frames': 9\. Allowed: 4k\+1 from 1 to 5"):
            engine.video("a fox", num_frames=9)
        assert engine.video("a fox").array.shape == (5, 64, 64, 3)


def test_options_that_do_not_exist_are_named_with_the_nearest() -> None:
    with Engine(CHAT, threads=1) as engine:
        with pytest.raises(InvalidRequest, match="Did you mean 'temperature'"):
            engine.chat("Hi!", temprature=1.0)
        with pytest.raises(InvalidRequest, match="There is no option 'width'"):
            engine.complete("Hi!", width=3)
