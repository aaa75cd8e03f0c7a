"""Configs with numbers that no model has are refused when they are looked at, by file and field."""

import json
from pathlib import Path
from typing import Any

import pytest

from hemiola.core.errors import CorruptWeights
from hemiola.core.hub.dummies import shapes_folder
from hemiola.core.hub.source import inspect

GOOD = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": None,
    "pad_token_id": 63,
}


def write(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(GOOD | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1."),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0."),
        ({"hidden_size": "abc"}, "hidden_size is 'abc'."),
        ({"hidden_size": 32.5}, "hidden_size is 32.5."),
        ({"vocab_size": True}, "vocab_size is True."),
        ({"intermediate_size": [64, -1]}, "intermediate_size is [64, -1]."),
        ({"num_attention_heads": 7}, "num_attention_heads is 7."),
        ({"text_config": {"head_dim": 0}}, "head_dim is 0."),
        ({"text_config": "abc"}, "text_config is 'abc'."),
        ({"intermediate_size": [64, None]}, "intermediate_size is [64, None]."),
        ({"max_position_embeddings": [96, 96]}, "max_position_embeddings is [96, 96]."),
        ({"vocab_size": []}, "vocab_size is []."),
    ],
)
def test_wrong_numbers_are_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """They were a library's traceback, or the failure of every request."""
    with pytest.raises(CorruptWeights) as refused:
        inspect(write(tmp_path, **changes), "m", "folder")
    assert f"{tmp_path / 'config.json'}: {says}" in refused.value.message
    assert "Allowed: " in refused.value.message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pad_token_id": -1},
        {"pad_token_id": None},
        {"pad_token_id": 64},
        {"pad_token_id": 99},
        {"intermediate_size": [64, 96]},
    ],
)
def test_numbers_that_models_have_pass(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Fine-tunes name a token for padding that the vocabulary was not made larger for."""
    assert inspect(write(tmp_path, **changes), "m", "folder").architecture == "Qwen3ForCausalLM"


def test_published_shapes_pass() -> None:
    folders = [folder for folder in shapes_folder().iterdir() if (folder / "config.json").is_file()]
    assert len(folders) >= 3
    for folder in folders:
        inspect(folder, folder.name, "shape")
