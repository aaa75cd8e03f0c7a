"""What cannot be loaded or served says why, before anything is computed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from hemiola.core.errors import (
    CannotFit,
    ContextTooLong,
    CorruptWeights,
    HemiolaError,
    InvalidRequest,
    ModelNotFound,
    UnsupportedModel,
)
from hemiola.core.memory import Arena
from hemiola.core.request import MediaRequest, TextRequest
from hemiola.core.step import Refused, Shortfall
from hemiola.llm import LanguageRunner
from hemiola.llm.loading import load_model
from hemiola.llm.models.base import LanguageModel
from hemiola.llm.models.decoder import Decoder
from hemiola.llm.models.transformers_decoder import TransformersDecoder
from hemiola.llm.tokenizer import TextTokenizer
from hemiola.tests import tiny_language as tiny
from hemiola.tests.llm.driver import Driver, MakeRunner, ask

CPU = torch.device("cpu")


def load(source: Path | Any, **options: Any) -> LanguageModel:
    return load_model(source, dtype=torch.float32, device=CPU, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that may be broken."""
    tiny.reference("qwen3").save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("backends", [{}, {"model": "transformers"}])
def test_a_missing_tensor_is_named(folder: Path, backends: dict[str, str]) -> None:
    rewrite(folder, lambda tensors: tensors.pop("model.layers.1.mlp.down_proj.weight"))
    with pytest.raises(CorruptWeights, match=r"model\.layers\.1\.mlp\.down_proj\.weight"):
        load(folder, backends=backends)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(7)}))
    with pytest.raises(CorruptWeights, match=r"'model\.norm\.weight' has the shape \[7\]; the config says \[48\]"):
        load(folder)


@pytest.mark.parametrize("backends", [{}, {"model": "transformers"}])
def test_a_truncated_file_is_named(folder: Path, backends: dict[str, str]) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptWeights, match=r"model\.safetensors"):
        load(folder, backends=backends)


def test_an_unknown_architecture_says_what_is_supported(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "quantum_lstm"}))
    with pytest.raises(UnsupportedModel, match=r"quantum_lstm.*Supported: llama, mistral, qwen2, qwen3, and "):
        load(folder)


def test_layers_without_attention_are_refused() -> None:
    config = transformers.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4)
    with pytest.raises(UnsupportedModel):
        load(config, load_format="dummy")


def test_what_a_library_says_of_a_forward_is_quoted_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was quoted uncut."""

    def forward(*_: Any, **__: Any) -> None:
        raise TypeError("unexpected keyword\n'position_ids'\n\nKnown are: " + "input_ids, " * 100)

    monkeypatch.setattr(transformers.Starcoder2ForCausalLM, "forward", forward)
    config = transformers.Starcoder2Config(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(UnsupportedModel) as refused:
        load(config, load_format="dummy")
    words = "Starcoder2ForCausalLM cannot run on a flattened batch: unexpected keyword 'position_ids'"
    assert refused.value.message == words


def test_attention_that_takes_no_interface_is_refused() -> None:
    """Falcon looks its attention up in a table of its own: a KeyError there."""
    config = transformers.FalconConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(UnsupportedModel, match=r"'falcon': its attention .*Supported: llama"):
        load(config, load_format="dummy")


def test_a_model_that_sees_pictures_is_refused_without_a_list_of_all_that_do_not() -> None:
    """The library's message is one."""
    with pytest.raises(UnsupportedModel, match=r"'qwen2_5_vl' is no causal decoder\. Supported: llama") as refused:
        load(transformers.Qwen2_5_VLConfig(), load_format="dummy")
    assert len(refused.value.message) < 400 and "\n" not in refused.value.message


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
@pytest.mark.parametrize("padding", [-1, tiny.VOCAB_SIZE, tiny.VOCAB_SIZE + 7])
@pytest.mark.parametrize("backends", [{}, {"model": "transformers"}])
def test_padding_beyond_the_vocabulary_is_no_hindrance(
    folder: Path, backends: dict[str, str], padding: int, load_format: str
) -> None:
    """Fine-tunes are published so; the library makes no embedding of it."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": padding}))
    assert load(folder, backends=backends, load_format=load_format).shape.vocab_size == tiny.VOCAB_SIZE


def test_layers_that_hide_their_chunks_are_refused() -> None:
    """Llama 4 restricts attention by a mask alone; without it the results would be wrong."""
    config = transformers.Llama4TextConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        intermediate_size_mlp=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        pad_token_id=0,
        layer_types=["chunked_attention", "full_attention"],
        attention_chunk_size=4,
    )
    with pytest.raises(UnsupportedModel, match="chunked_attention"):
        load(config, load_format="dummy")


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    tiny.reference("llama").save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    runner = LanguageRunner("tiny", tmp_path, Arena(8 << 20))
    ids = tiny.token_ids(9)
    assert Driver(runner).run(ask("a", ids))["a"] == tiny.reference_greedy("llama", ids, 8)


@pytest.mark.parametrize("name", ["qwen2", "glm4"])
def test_dummy_weights_need_only_a_config(name: str) -> None:
    first = Driver(LanguageRunner("a", tiny.config_of(name), Arena(8 << 20), load_format="dummy"))
    ids = tiny.token_ids(30)
    tokens = first.run(ask("a", ids, max_tokens=5))["a"]
    assert len(tokens) == 5 and all(0 <= token < tiny.VOCAB_SIZE for token in tokens)


def test_dummy_weights_of_a_folder_are_not_those_in_its_files(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert isinstance(load(folder, load_format="dummy"), Decoder)


def test_the_generic_path_can_be_asked_for_and_agrees_with_ours() -> None:
    folder = tiny.folder_of("qwen3_windows")
    generic = LanguageRunner("tiny", folder, Arena(8 << 20), backends={"model": "transformers"})
    assert isinstance(generic._model, TransformersDecoder)
    ids = tiny.token_ids(33)
    assert Driver(generic).run(ask("a", ids, max_tokens=12))["a"] == tiny.reference_greedy("qwen3_windows", ids, 12)


def test_a_backend_can_be_asked_for_by_operation(make_runner: MakeRunner) -> None:
    ids = tiny.token_ids(33)
    driver = Driver(make_runner(backends={"linear": "torch"}))
    assert driver.run(ask("a", ids))["a"] == tiny.reference_greedy("qwen3", ids, 8)
    with pytest.raises(ValueError, match="Unknown linear backend 'magic'"):
        make_runner(backends={"linear": "magic"})


def test_half_precision_runs_close_to_single(make_runner: MakeRunner) -> None:
    ids = tiny.token_ids(33)
    driver = Driver(make_runner(dtype=torch.bfloat16))
    driver.run(ask("a", ids, max_tokens=1, logprobs=20))
    expected = torch.log_softmax(tiny.reference_logits("qwen3", ids)[-1], -1)
    for one in driver.events["a"][0].top_logprobs:
        assert one.logprob == pytest.approx(expected[one.token_id].item(), abs=0.15)


# Requests that cannot run


def refused(runner: LanguageRunner, request: TextRequest | MediaRequest) -> HemiolaError:
    answer = runner.admit(request)
    assert isinstance(answer, Refused)
    return answer.error


def test_requests_that_can_never_run_are_refused(make_runner: MakeRunner) -> None:
    runner = make_runner()
    assert isinstance(refused(runner, ask("a", [])), InvalidRequest)
    assert "[0, 320)" in refused(runner, ask("a", [320])).message
    too_long = refused(runner, ask("a", tiny.token_ids(512)))
    assert isinstance(too_long, ContextTooLong) and "512" in too_long.message
    picture = MediaRequest(
        id="p", model="tiny", token_ids={}, width=8, height=8, num_inference_steps=1, guidance_scale=1.0
    )
    assert "not pictures" in refused(runner, picture).message


def test_what_cannot_fit_alone_is_refused_and_what_only_has_to_wait_is_not(make_runner: MakeRunner) -> None:
    page_bytes = 4 * 3 * 2 * 2 * 16 * 4
    runner = make_runner(arena_bytes=96 * page_bytes, host_bytes=0)
    error = refused(runner, ask("a", tiny.token_ids(300), max_tokens=200))
    assert isinstance(error, CannotFit) and error.bytes_needed == 125 * page_bytes
    driver = Driver(runner)
    (_first,) = driver.admit(ask("b", tiny.token_ids(200, seed=1)))
    answer = runner.admit(ask("c", tiny.token_ids(200, seed=2)))
    assert isinstance(answer, Shortfall) and answer.page_class == "tiny"
    driver.run()
    assert driver.run(ask("c", tiny.token_ids(200, seed=2)))["c"] == tiny.reference_greedy(
        "qwen3", tiny.token_ids(200, seed=2), 8
    )
    runner.kv_cache.arena.ledger.check()


@pytest.mark.parametrize("old", [None, "tokenizer.model"])
def test_a_model_without_a_tokenizer_that_can_be_read_says_what_to_do(tmp_path: Path, old: str | None) -> None:
    """It ended in another library's advice to install something."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    if old is not None:
        (tmp_path / old).write_bytes(b"no model")
    with pytest.raises(ModelNotFound, match=r"no tokenizer that can be read: looked for tokenizer\.json\.") as refused:
        TextTokenizer(tmp_path)
    assert refused.value.message.endswith('{"tokenizer": {"shares": MODEL}}.') and "\n" not in refused.value.message
    assert (old is not None) is ("tokenizer.model is there" in refused.value.message)


def test_a_broken_tokenizer_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CorruptWeights, match=r"tokenizer\.json cannot be read"):
        TextTokenizer(tmp_path)
