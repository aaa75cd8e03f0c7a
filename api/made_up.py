"""Models of which only configs are wanted: how many parameters they would have, without making them.

Modules are built on torch's meta device, where tensors have a shape and no bytes.
"""

import importlib
from pathlib import Path
from typing import Any

import torch

from hemiola.core.errors import CorruptWeights, UnsupportedModel
from hemiola.core.hub import ModelSource, WeightSummary, made_up_weights, one_line, read_config
from hemiola.core.hub.source import read_json
from hemiola.llm.loading import auto_class, has_language_head, supported


def count_params(source: ModelSource) -> WeightSummary:
    """Parameters of all parts of a model, each counted once however often it is used. Needs configs alone.

    Raises:
        UnsupportedModel: a part is of a class that its library does not have or that no code here runs, or the model
            is no folder of configs.
        CorruptWeights: a config has a field that the library makes no model of.
    """
    if source.path.is_file():
        raise UnsupportedModel(f"{source.path} has no config.json from which random weights could be made.")
    return made_up_weights(sum(params_by_part(source).values()))


def params_by_part(source: ModelSource) -> dict[str, int]:
    """The same by part: `model` for a language model."""
    if source.kind == "language":
        config = read_config(source.path, supported())
        auto = auto_class(config, has_head=has_language_head(config))
        return {"model": _count(source.path, auto.from_config, config)}
    found = {}
    for name, library, class_name in source.components:
        folder = source.path / name
        is_shared = source.shared_encoder is not None and name == "text_encoder"
        if (folder / "config.json").is_file() and not is_shared:
            found[name] = _count(folder, *_part(folder, library, class_name))
    return found


def _part(folder: Path, library: str, class_name: str) -> tuple[Any, Any]:
    """What makes the part, and the config it takes."""
    made = getattr(importlib.import_module(library), class_name, None) if library in _LIBRARIES else None
    if made is None:
        raise UnsupportedModel(f"{folder}: there is no '{class_name}' in '{library}'.")
    config = read_json(folder / "config.json")
    if library == "diffusers":
        return made.from_config, config
    return lambda given: made(made.config_class.from_dict(given)), config


_LIBRARIES = frozenset({"diffusers", "transformers"})


def _count(folder: Path, make: Any, config: Any) -> int:
    try:
        with torch.device("meta"):
            module = make(config)
    except ImportError as error:  # the library needs a package that is not there
        raise UnsupportedModel(f"{folder / 'config.json'}: {one_line(error)}") from error
    except Exception as error:  # whatever the libraries raise for fields that are wrong
        raise CorruptWeights(f"No model can be made of {folder / 'config.json'}: {one_line(error)}") from error
    return sum(parameter.numel() for parameter in module.parameters())
