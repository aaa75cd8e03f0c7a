"""What a user writes becomes a model's files, or a message that says where they were looked for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]  # public, but not in an __all__
from safetensors.numpy import save_file

from hemiola.core.config import Environment
from hemiola.core.errors import CorruptWeights, InvalidRequest, ModelNotFound, UnsupportedModel
from hemiola.core.hub import (
    DEMO_MODELS,
    SharedEncoder,
    check_weights,
    encoder_source,
    known_models,
    remote,
    resolve,
    resolve_all,
    shape_names,
)


def language_model(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    save_file({"a": np.zeros(4, np.float32)}, folder / "model.safetensors")
    return folder


def pipeline(folder: Path, shares: str | None = None) -> Path:
    """A Z-Image folder; with `shares` it has no text encoder and no tokenizer of its own."""
    index: dict[str, Any] = {
        "_class_name": "ZImagePipeline",
        "_diffusers_version": "0.42.1",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3Model"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "ZImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None],
    }
    for part in ("transformer", "vae", *([] if shares else ["text_encoder"])):
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text("{}")
        save_file({part: np.zeros(4, np.float16)}, folder / part / "model.safetensors")
    for part in ("scheduler", *([] if shares else ["tokenizer"])):
        (folder / part).mkdir()
        (folder / part / f"{part}_config.json").write_text("{}")
    (folder / "model_index.json").write_text(json.dumps(index))
    if shares:
        declaration = {"text_encoder": {"shares": shares, "hidden_state": -2}}
        (folder / "hemiola.json").write_text(json.dumps(declaration))
    return folder


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    """Offline, with an empty cache and three built-in models."""
    demos = tmp_path / "demos"
    language_model(demos / "hemiola-tiny-chat")
    pipeline(demos / "hemiola-tiny-image", shares="hemiola-tiny-chat")
    pipeline(demos / "hemiola-tiny-video")
    return Environment(demo_models=demos, is_offline=True, hub_cache=tmp_path / "cache")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def cache_model(env: Environment, repo: str) -> Path:
    """A language model in the Hub's cache, as huggingface_hub lays it out."""
    entry = env.hub_cache / f"models--{repo.replace('/', '--')}"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text("0" * 40)
    return language_model(entry / "snapshots" / ("0" * 40))


def test_a_folder_with_config_json_is_a_language_model(here: Path, env: Environment) -> None:
    language_model(here / "llama")
    source = resolve("llama", environment=env)
    assert (source.name, source.kind, source.architecture) == ("llama", "language", "Qwen3ForCausalLM")
    assert (source.origin, source.shared_encoder) == ("folder", None)


def test_a_folder_with_model_index_json_is_a_diffusion_model(here: Path, env: Environment) -> None:
    source = resolve(pipeline(here / "zimage"), environment=env)
    assert (source.name, source.kind, source.architecture) == ("zimage", "diffusion", "ZImagePipeline")
    assert ("vae", "diffusers", "AutoencoderKL") in source.components
    assert "safety_checker" not in [name for name, _, _ in source.components]
    assert check_weights(source).num_tensors == 3


def test_a_gguf_file_is_a_language_model_alone_or_in_a_folder(here: Path, env: Environment) -> None:
    (here / "quants").mkdir()
    (here / "quants" / "tiny.Q4.gguf").write_bytes(b"GGUF")
    alone = resolve("quants/tiny.Q4.gguf", environment=env)
    assert (alone.name, alone.kind, alone.architecture) == ("tiny.Q4", "language", "gguf")
    assert resolve("quants", environment=env).path == here / "quants" / "tiny.Q4.gguf"
    (here / "quants" / "tiny.Q8.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match=r"name one of them: tiny\.Q4\.gguf, tiny\.Q8\.gguf"):
        resolve("quants", environment=env)


def test_a_name_can_be_given_to_anything(here: Path, env: Environment) -> None:
    language_model(here / "llama")
    language_model(here / "a=b")
    assert resolve("mine=llama", environment=env).name == "mine"
    assert resolve("mine=hemiola-tiny-chat", environment=env).origin == "demo"
    assert resolve("a=b", environment=env).path == here / "a=b"
    for spec in ("=llama", "mine=", ""):
        with pytest.raises(InvalidRequest, match="name=model"):
            resolve(spec, environment=env)


def test_demo_stands_for_all_three_built_in_models(env: Environment) -> None:
    sources = resolve_all(["demo"], environment=env)
    assert tuple(source.name for source in sources) == DEMO_MODELS
    assert [source.kind for source in sources] == ["language", "diffusion", "diffusion"]
    assert resolve_all(["demo", "hemiola-tiny-chat"], environment=env) == sources
    with pytest.raises(InvalidRequest, match="stands for 3 models"):
        resolve("demo", environment=env)


def test_two_models_of_one_name_are_refused(here: Path, env: Environment) -> None:
    language_model(here / "x" / "llama")
    language_model(here / "y" / "llama")
    with pytest.raises(InvalidRequest, match=r"served as 'llama'.*x/llama and .*y/llama"):
        resolve_all(["x/llama", "y/llama"], environment=env)
    assert len(resolve_all(["x/llama", "other=y/llama"], environment=env)) == 2


def test_a_misspelt_name_lists_every_place_and_near_names(here: Path, env: Environment) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve("hemiola-tiny-caht", environment=env)
    message = caught.value.message
    assert f"a built-in model in {env.demo_models}: there are {', '.join(DEMO_MODELS)}" in message
    assert f"{here / 'hemiola-tiny-caht'}: does not exist" in message
    assert "HF_HUB_OFFLINE is set" in message and str(env.hub_cache) in message
    assert "Did you mean hemiola-tiny-chat" in message


def test_near_folders_and_cached_models_are_suggested(here: Path, env: Environment) -> None:
    language_model(here / "models" / "llama-small")
    cache_model(env, "Qwen/Qwen3-8B")
    with pytest.raises(ModelNotFound, match="Did you mean models/llama-small"):
        resolve("models/lama-small", environment=env)
    with pytest.raises(ModelNotFound, match="Did you mean Qwen/Qwen3-8B"):
        resolve("Qwen/Qwen-8B", environment=env)


def test_a_path_is_never_looked_for_on_the_hub(here: Path, env: Environment) -> None:
    for spec in ("./llama", "/no/such/llama", "a/b/c", "llama.gguf"):
        with pytest.raises(ModelNotFound) as caught:
            resolve(spec, environment=env)
        assert "Hugging Face" not in caught.value.message


def test_built_in_models_that_are_missing_are_said_to_be(here: Path, env: Environment) -> None:
    with pytest.raises(ModelNotFound, match=r"a built-in model in .*here: there are none"):
        resolve("hemiola-tiny-chat", environment=replace(env, demo_models=here))


def test_folders_that_are_no_models_say_what_they_are(here: Path, env: Environment) -> None:
    language_model(here / "models" / "llama")
    with pytest.raises(ModelNotFound, match=r"no config\.json.*are models: llama"):
        resolve("models", environment=env)
    (here / "lora").mkdir()
    (here / "lora" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match="a LoRA adapter"):
        resolve("lora", environment=env)
    (here / "vae").mkdir()
    (here / "vae" / "config.json").write_text('{"_class_name": "AutoencoderKL"}')
    with pytest.raises(UnsupportedModel, match=r"one part of a pipeline \(AutoencoderKL\)"):
        resolve("vae", environment=env)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_broken_description_names_the_file(here: Path, env: Environment, text: str) -> None:
    (here / "m").mkdir()
    for name in ("config.json", "model_index.json"):
        (here / "m" / name).write_text(text)
        with pytest.raises(CorruptWeights, match=f"m/{name}"):
            resolve("m", environment=env)


def test_a_part_named_by_the_index_has_to_be_there(here: Path, env: Environment) -> None:
    folder = pipeline(here / "zimage")
    (folder / "vae" / "model.safetensors").unlink()
    with pytest.raises(CorruptWeights, match="zimage/vae has no weight file"):
        check_weights(resolve(folder, environment=env))
    (folder / "vae" / "config.json").unlink()
    (folder / "vae").rmdir()
    with pytest.raises(CorruptWeights, match="zimage has no folder vae"):
        check_weights(resolve(folder, environment=env))


def test_a_shared_text_encoder_is_read_and_not_counted_twice(env: Environment) -> None:
    source = resolve("hemiola-tiny-image", environment=env)
    assert source.shared_encoder == SharedEncoder("hemiola-tiny-chat", -2)
    assert check_weights(source).num_tensors == 2


@pytest.mark.parametrize("declared", ['{"shares": "x"}', '{"shares": 3, "hidden_state": -2}', '"x"'])
def test_a_senseless_declaration_of_a_shared_encoder_is_refused(here: Path, env: Environment, declared: str) -> None:
    folder = pipeline(here / "zimage", shares="x")
    (folder / "hemiola.json").write_text(f'{{"text_encoder": {declared}}}')
    with pytest.raises(CorruptWeights, match="text_encoder has to be"):
        resolve(folder, environment=env)


def test_the_shared_encoder_is_the_served_model_under_whatever_name(here: Path, env: Environment) -> None:
    image, chat, renamed = resolve_all(
        ["hemiola-tiny-image", "hemiola-tiny-chat", "mine=hemiola-tiny-chat"], environment=env
    )
    assert encoder_source(image, [image, chat]) is chat
    assert encoder_source(image, [image, renamed]) is renamed
    assert encoder_source(image, [image]).path.samefile(chat.path)


def test_the_shared_encoder_can_lie_inside_the_pipeline_or_be_any_model(here: Path, env: Environment) -> None:
    inside = resolve(pipeline(here / "a", shares="encoders/chat"), environment=env)
    language_model(here / "a" / "encoders" / "chat")
    assert encoder_source(inside, [inside]).path == here / "a" / "encoders" / "chat"
    elsewhere = resolve(pipeline(here / "b", shares="hemiola-tiny-chat"), environment=env)
    assert encoder_source(elsewhere, [elsewhere], environment=env).origin == "demo"


def test_a_cached_model_of_the_hub_needs_no_network(here: Path, env: Environment) -> None:
    folder = cache_model(env, "Qwen/Qwen3-tiny")
    source = resolve("Qwen/Qwen3-tiny", environment=env)
    assert (source.name, source.origin, source.path) == ("Qwen/Qwen3-tiny", "hub", folder)
    assert resolve(f"Qwen/Qwen3-tiny@{'0' * 40}", environment=env).name == "Qwen/Qwen3-tiny"


def test_known_models_are_the_built_in_and_the_cached_ones_and_the_shapes(here: Path, env: Environment) -> None:
    cache_model(env, "Qwen/Qwen3-tiny")
    (env.hub_cache / "models--somebody--tokenizer-only").mkdir()
    assert [source.name for source in known_models(env)] == [*DEMO_MODELS, "Qwen/Qwen3-tiny", *shape_names()]


class FakeHub:
    """Stands in for huggingface_hub.snapshot_download: gives a prepared folder, notes which files were asked for."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self.asked: set[str] = set()

    def __call__(self, repo_id: str, *, allow_patterns: list[str], ignore_patterns: list[str], **_: Any) -> str:
        names = [str(file.relative_to(self.repo)) for file in self.repo.rglob("*") if file.is_file()]
        self.asked |= set(filter_repo_objects(names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns))
        return str(self.repo)


def test_only_files_that_are_read_are_downloaded(here: Path, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = pipeline(here / "repo")
    unwanted = ("all-in-one.safetensors", "vae/model.bin", "vae/model.fp16.safetensors", "flax/vae/model.safetensors")
    for name in unwanted:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_bytes(b"")
    hub = FakeHub(repo)
    monkeypatch.setattr(remote, "snapshot_download", hub)
    source = resolve("owner/zimage", environment=replace(env, is_offline=False))
    assert (source.name, source.origin) == ("owner/zimage", "hub")
    assert {"vae/model.safetensors", "transformer/config.json", "model_index.json"} <= hub.asked
    assert not hub.asked & set(unwanted)
