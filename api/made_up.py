"""Models of which only configs are wanted: how many parameters they would have, without making them.

Modules are built on torch's meta device, where tensors have a shape and no bytes.
"""

import importlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hemiola.core.errors import UnsupportedModel
from hemiola.core.hub import ModelSource, WeightSummary, made_up_weights
from hemiola.core.hub.source import read_json


def count_params(source: ModelSource) -> WeightSummary:
    """Parameters of all parts of a model, each counted once however often it is used. Needs configs alone.

    Raises:
        UnsupportedModel: a part is of a class that its library does not have, or the model is no folder of configs.
    """
    if source.path.is_file():
        raise UnsupportedModel(f"{source.path} has no config.json from which random weights could be made.")
    return made_up_weights(sum(params_by_part(source).values()))


def params_by_part(source: ModelSource) -> dict[str, int]:
    """The same by part: `model` for a language model."""
    if source.kind == "language":
        return {"model": _count(AutoModelForCausalLM.from_config, _language_config(source.path))}
    found = {}
    for name, library, class_name in source.components:
        folder = source.path / name
        is_shared = source.shared_encoder is not None and name == "text_encoder"
        if (folder / "config.json").is_file() and not is_shared:
            found[name] = _count(*_part(folder, library, class_name))
    return found


def _language_config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, KeyError) as error:
        raise UnsupportedModel(f"{folder}: {str(error).strip().partition(chr(10))[0]}") from error


def _part(folder: Path, library: str, class_name: str) -> tuple[Any, Any]:
    """What makes the part, and the config it takes."""
    made = getattr(importlib.import_module(library), class_name, None) if library in _LIBRARIES else None
    if made is None:
        raise UnsupportedModel(f"{folder}: there is no '{class_name}' in '{library}'.")
    config = read_json(folder / "config.json")
    if library == "diffusers":
        return made.from_config, config
    return made, made.config_class.from_dict(config)


_LIBRARIES = frozenset({"diffusers", "transformers"})


def _count(make: Any, config: Any) -> int:
    with torch.device("meta"):
        module = make(config)
    return sum(parameter.numel() for parameter in module.parameters())
