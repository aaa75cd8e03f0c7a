"""Parameters counted from configs alone, and what is said of configs that no model can be made of."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hemiola.api.made_up import count_params
from hemiola.core.errors import CorruptWeights, HemiolaError, UnsupportedModel
from hemiola.core.hub.source import inspect
from hemiola.diffusion.components import Components
from hemiola.diffusion.edge.files import read_pipeline
from hemiola.llm.loading import load_model
from hemiola.tests.engine import models


def changed(to: Path, name: str, part: str, **changes: Any) -> Path:
    """A copy of a tiny model with other fields in the config of a part."""
    shutil.copytree(models.folder(name), to)
    path = to / part / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return to


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("transformer", {"num_attention_heads": "abc"}),
        ("transformer", {"num_layers": "two"}),
        ("vae", {"base_dim": "wide"}),
        ("text_encoder", {"d_model": "abc"}),
    ],
)
def test_a_part_that_no_module_can_be_made_of_is_named(tmp_path: Path, part: str, changes: dict[str, Any]) -> None:
    """It ended in a library's traceback."""
    folder = changed(tmp_path / "clip", "clip", part, **changes)
    with pytest.raises(CorruptWeights, match=rf"{part}/config\.json"):
        count_params(inspect(folder, "clip", "folder"))
    files = read_pipeline(folder)
    components = Components(files, dtype=torch.float32, device="cpu", load_format="dummy")
    with pytest.raises(CorruptWeights, match=rf"{part}/config\.json"):
        components.model(part)


@pytest.mark.parametrize(
    "changes", [{"model_type": "no such"}, {"rms_norm_eps": "tiny"}, {"layer_types": ["a", "b", "c"]}]
)
def test_a_language_config_that_cannot_be_read_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = changed(tmp_path / "chat", "chat", ".", **changes)
    with pytest.raises(HemiolaError, match=r"chat/config\.json: ") as refused:
        count_params(inspect(folder, "chat", "folder"))
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("padding", [-1, 10_000_000])
def test_padding_beyond_the_vocabulary_is_counted_without(tmp_path: Path, padding: int) -> None:
    folder = changed(tmp_path / "chat", "chat", ".", pad_token_id=padding)
    assert count_params(inspect(folder, "chat", "folder")) == count_params(
        inspect(models.folder("chat"), "chat", "folder")
    )


def refusals(folder: Path) -> set[str]:
    """What is said where parameters are counted, and where a model is made."""
    said = set()
    with pytest.raises(UnsupportedModel) as refused:
        count_params(inspect(folder, "chat", "folder"))
    said.add(refused.value.message)
    with pytest.raises(UnsupportedModel) as refused:
        load_model(folder, dtype=torch.float32, device=torch.device("cpu"), load_format="dummy")
    return said | {refused.value.message}


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "llava", "t5"])
def test_a_model_that_is_no_decoder_is_refused_as_one_that_is_not_supported(tmp_path: Path, model_type: str) -> None:
    """With random weights, models that see pictures were called corrupt: there is nothing to be corrupt."""
    text = {"model_type": "llama", "max_position_embeddings": 64}
    config = {"model_type": model_type} | ({"text_config": text} if model_type == "llava" else {})
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}))
    (said,) = refusals(tmp_path)
    assert said.startswith(f"'{model_type}' is no causal decoder. Supported: llama, ")


def test_a_config_of_which_no_text_part_can_be_told_is_refused(tmp_path: Path) -> None:
    """It has two of them, which was a ValueError of the library; some versions of it say something else."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "musicgen", "max_position_embeddings": 64}))
    (said,) = refusals(tmp_path)
    assert said.startswith(f"{tmp_path / 'config.json'}: ") and "Supported: llama, " in said


def test_a_model_for_which_a_package_is_missing_is_not_called_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 3n sees pictures with the help of another package: made up it was corrupt, else there was a traceback."""

    def refuse(*_: Any, **__: Any) -> None:
        raise ImportError("\nIt needs a package\nthat is not there.")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_config", refuse)
    config = {"model_type": "gpt2", "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert all("It needs a package that is not there." in said for said in refusals(tmp_path))


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_what_a_library_says_of_a_part_is_quoted_in_one_line_of_bounded_length(
    tmp_path: Path, load_format: Any
) -> None:
    """It came whole, and where weights are read in several lines."""
    folder = changed(tmp_path / "clip", "clip", "text_encoder", d_model="x" * 10_000)
    components = Components(read_pipeline(folder), dtype=torch.float32, device="cpu", load_format=load_format)
    with pytest.raises(CorruptWeights, match="text_encoder") as refused:
        components.model("text_encoder")
    assert len(refused.value.message) < 800 and "\n" not in refused.value.message
