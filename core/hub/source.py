"""Where a model's files are and what kind of model they are, told from the files alone.

Knows the folder layouts of transformers (config.json), diffusers (model_index.json) and llama.cpp (.gguf); reads no
weights and decides nothing about who can run them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..config import LoadFormat
from ..errors import CorruptWeights, ModelNotFound, UnsupportedModel
from .numbers import check_numbers

Kind = Literal["language", "diffusion"]
Origin = Literal["demo", "shape", "folder", "hub"]


@dataclass(frozen=True, slots=True)
class SharedEncoder:
    """A pipeline whose text encoder is a language model of its own: `hidden_states[hidden_state]` of model `shares`.

    `shares` is a served name, or a path relative to the pipeline's folder.
    """

    shares: str
    hidden_state: int


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that was found.

    Fields:
        name: what it is served as.
        path: its folder, or its .gguf file.
        kind: which of the two runners takes it.
        architecture: the class in config.json or model_index.json (`Qwen3ForCausalLM`, `ZImagePipeline`), or "gguf".
        origin: ships with the package (with weights, or as a shape without), is a local folder, or came from the
            Hugging Face Hub.
        components: the pipeline's parts by name with (library, class); empty for language models.
        shared_encoder: set when hemiola.json says that the text encoder is another model.
        shared_tokenizer: the model whose tokenizer it uses, set when hemiola.json says `{"tokenizer": {"shares": x}}`.
        load_format: "dummy" where weights are made up: always for shapes.
    """

    name: str
    path: Path
    kind: Kind
    architecture: str
    origin: Origin
    components: tuple[tuple[str, str, str], ...] = ()
    shared_encoder: SharedEncoder | None = None
    shared_tokenizer: str | None = None
    load_format: LoadFormat = "auto"


def is_model(path: Path) -> bool:
    """Whether the path has what kinds are told from."""
    if path.is_file():
        return path.suffix == ".gguf"
    return (path / "model_index.json").is_file() or (path / "config.json").is_file() or bool(_gguf_files(path))


def inspect(path: Path, name: str, origin: Origin) -> ModelSource:
    """What lies at `path`, which exists.

    Raises:
        ModelNotFound: nothing there says that it is a model.
        UnsupportedModel: it is part of a model only.
        CorruptWeights: one of its JSON files cannot be read, lacks what it must have, or has numbers that no model has.
    """
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelNotFound(f"{path} is a file; a model is a folder or a .gguf file.")
        return ModelSource(name, path, "language", "gguf", origin)
    if (path / "model_index.json").is_file():
        return _inspect_pipeline(path, name, origin)
    if (path / "config.json").is_file():
        architecture = _language_architecture(path / "config.json")
        return ModelSource(name, path, "language", architecture, origin, shared_tokenizer=_shared_tokenizer(path))
    return ModelSource(name, _only_gguf(path), "language", "gguf", origin)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CorruptWeights: missing, unreadable, or no object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorruptWeights(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CorruptWeights(f"{path} has to hold a JSON object, not a {type(value).__name__}.")
    return value


def _inspect_pipeline(path: Path, name: str, origin: Origin) -> ModelSource:
    index = read_json(path / "model_index.json")
    architecture = index.get("_class_name")
    if not isinstance(architecture, str):
        raise CorruptWeights(f"{path / 'model_index.json'} has no _class_name.")
    components = tuple(
        (key, str(value[0]), str(value[1]))
        for key, value in index.items()
        if not key.startswith("_") and isinstance(value, list) and len(value) == 2 and None not in value
    )
    encoder = declared_encoder(path, read_declaration(path))
    return ModelSource(name, path, "diffusion", architecture, origin, components, encoder, _shared_tokenizer(path))


def read_declaration(path: Path) -> dict[str, Any]:
    """What hemiola.json in a model's folder says; nothing without one.

    Raises:
        CorruptWeights: it is no JSON object.
    """
    declaration = path / "hemiola.json"
    return read_json(declaration) if declaration.is_file() else {}


def _shared_tokenizer(path: Path) -> str | None:
    tokenizer = read_declaration(path).get("tokenizer")
    if tokenizer is None:
        return None
    shares = tokenizer.get("shares") if isinstance(tokenizer, dict) else None
    if not isinstance(shares, str) or not shares:
        raise CorruptWeights(f'{path / "hemiola.json"}: tokenizer has to be {{"shares": a model}}, not {tokenizer!r}.')
    return shares


def declared_encoder(path: Path, declaration: Mapping[str, Any]) -> SharedEncoder | None:
    """The text encoder that a pipeline's declaration (`read_declaration`) says is another model.

    Raises:
        CorruptWeights: it does not say which, or which hidden state.
    """
    encoder = declaration.get("text_encoder")
    if encoder is None:
        return None
    shares = encoder.get("shares") if isinstance(encoder, dict) else None
    hidden_state = encoder.get("hidden_state") if isinstance(encoder, dict) else None
    if not isinstance(shares, str) or not shares or not isinstance(hidden_state, int):
        wanted = '{"shares": a model, "hidden_state": a number}'
        raise CorruptWeights(f"{path / 'hemiola.json'}: text_encoder has to be {wanted}, not {encoder!r}.")
    return SharedEncoder(shares, hidden_state)


def _language_architecture(path: Path) -> str:
    config = read_json(path)
    check_numbers(path, config)
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    if "_class_name" in config:
        raise UnsupportedModel(
            f"{path.parent} holds one part of a pipeline ({config['_class_name']}); "
            "give the folder with model_index.json instead."
        )
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise CorruptWeights(f"{path} names neither architectures nor a model_type.")
    return model_type


def _gguf_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.gguf"))


def _only_gguf(path: Path) -> Path:
    files = _gguf_files(path)
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(file.name for file in files)
        raise ModelNotFound(f"{path} holds several .gguf files; name one of them: {names}.")
    raise ModelNotFound(_what_is_there_instead(path))


def _what_is_there_instead(path: Path) -> str:
    message = f"{path} is not a model: it has no config.json, no model_index.json and no .gguf file."
    if (path / "adapter_config.json").is_file():
        return message + " It holds a LoRA adapter, which is no model by itself."
    models = [entry.name for entry in sorted(path.iterdir()) if entry.is_dir() and is_model(entry)]
    if models:
        return message + f" Folders in it that are models: {', '.join(models)}."
    return message
