"""Parameters counted from configs alone, and what is said of configs that no model can be made of."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hemiola.api.made_up import count_params
from hemiola.core.errors import CorruptWeights, HemiolaError
from hemiola.core.hub.source import inspect
from hemiola.diffusion.components import Components
from hemiola.diffusion.edge.files import read_pipeline
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
