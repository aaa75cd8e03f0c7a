"""Test shapes are found like models, hold nothing but configs, and are as large as what they are named after."""

import json
from pathlib import Path

import pytest

from hemiola.api.made_up import count_params, params_by_part
from hemiola.core.config import Environment
from hemiola.core.errors import CorruptWeights, ModelNotFound
from hemiola.core.hub import declared_weights, known_models, resolve, resolve_all, shape_names, tokenizer_folder
from hemiola.core.hub.dummies import declared_params
from hemiola.diffusion.edge import EDGES
from hemiola.llm.tokenizer import TextTokenizer

# Parameters as the models' cards and papers give them, in billions.
PUBLISHED = {
    "dummy:llama-8b": {"model": 8.03},
    "dummy:qwen3-8b": {"model": 8.19},
    "dummy:flux-dev": {"transformer": 11.9, "text_encoder_2": 4.76, "text_encoder": 0.123},
    "dummy:z-image": {"transformer": 6.15, "text_encoder": 4.02},
    "dummy:wan-1.3b": {"transformer": 1.42, "text_encoder": 5.68},
    "dummy:wan-14b": {"transformer": 14.3, "text_encoder": 5.68},
}


@pytest.mark.parametrize("name", shape_names())
def test_what_is_declared_is_what_the_libraries_would_make(name: str) -> None:
    source = resolve(name)
    assert dict(declared_params(source.path) or {}) == params_by_part(source)
    assert declared_weights(source) == count_params(source)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_models(name: str) -> None:
    declared = declared_params(resolve(name).path) or {}
    for part, billions in PUBLISHED[name].items():
        assert declared[part] / 1e9 == pytest.approx(billions, rel=5e-3), part


def test_every_published_shape_has_a_small_one_beside_it() -> None:
    tiny = {name for name in shape_names() if name.endswith("-tiny")}
    assert {name for name in shape_names() if name not in PUBLISHED} == tiny
    for name in tiny:
        weights = declared_weights(resolve(name))
        assert weights is not None and weights.num_params < 3e6


def test_a_shape_has_a_name_a_kind_and_random_weights() -> None:
    source, renamed = resolve_all(["dummy:llama-8b", "llm=dummy:llama-8b"])
    assert (source.name, source.kind, source.origin) == ("dummy:llama-8b", "language", "shape")
    assert (source.architecture, source.load_format) == ("LlamaForCausalLM", "dummy")
    assert (renamed.name, renamed.load_format, renamed.path) == ("llm", "dummy", source.path)
    assert resolve("hemiola-tiny-chat").load_format == "auto"


def test_a_shape_is_held_in_the_dtype_that_is_asked_for() -> None:
    weights = declared_weights(resolve("dummy:llama-8b"))
    assert weights is not None
    assert weights.bytes_as("bfloat16") == 2 * weights.num_params
    assert weights.bytes_as("float32") == 4 * weights.num_params


@pytest.mark.parametrize("name", ["dummy:", "dummy:lama-8b", "dummy:../shapes/llama-8b"])
def test_a_shape_that_does_not_exist_lists_those_that_do(name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve(name)
    assert all(known in caught.value.message for known in (name, *PUBLISHED))


def test_shapes_are_small_files_of_json_alone() -> None:
    files = [path for name in shape_names() for path in resolve(name).path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json"}
    assert max(path.stat().st_size for path in files) < 4096


@pytest.mark.parametrize("name", shape_names())
def test_token_ids_of_the_borrowed_tokenizer_lie_within_every_encoders_vocabulary(name: str) -> None:
    source = resolve(name)
    folder = tokenizer_folder(source)
    assert folder is not None and folder == resolve("hemiola-tiny-chat").path
    if source.kind == "language":
        configs = [source.path / "config.json"]
    else:
        configs = [source.path / part / "config.json" for part, _, _ in source.components if "encoder" in part]
    vocab_size = TextTokenizer(folder).vocab_size
    assert configs and all(json.loads(path.read_text())["vocab_size"] >= vocab_size for path in configs)


def test_models_without_such_a_declaration_use_their_own_tokenizer() -> None:
    assert tokenizer_folder(resolve("hemiola-tiny-chat")) is None


def test_known_models_are_followed_by_the_shapes(tmp_path: Path) -> None:
    known = known_models(Environment(is_offline=True, hub_cache=tmp_path))
    assert tuple(source.name for source in known if source.origin == "shape") == shape_names()


def test_all_pipelines_of_shapes_are_supported() -> None:
    classes = {resolve(name).architecture for name in shape_names() if resolve(name).kind == "diffusion"}
    assert classes <= set(EDGES)


@pytest.mark.parametrize("text", ['{"num_params": 3}', '{"num_params": {"model": "x"}}'])
def test_senseless_numbers_of_parameters_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "hemiola.json").write_text(text)
    with pytest.raises(CorruptWeights, match="num_params"):
        declared_params(tmp_path)


@pytest.mark.parametrize("declared", ['"x"', '{"shares": 3}', "{}"])
def test_a_senseless_declaration_of_a_shared_tokenizer_is_refused(tmp_path: Path, declared: str) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "hemiola.json").write_text(f'{{"tokenizer": {declared}}}')
    with pytest.raises(CorruptWeights, match="tokenizer has to be"):
        resolve(tmp_path)
