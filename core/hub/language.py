"""What the config.json of a language model says, for all who ask: the edge and the engine must not read it differently.

No torch at import: where transformers is needed, it is imported then, for it takes seconds.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UnsupportedModel
from .numbers import check_count, check_numbers
from .quoting import one_line
from .source import read_json

# What families call the context's length besides `max_position_embeddings`, which goes first: `attribute_map` of their
# configs in transformers. Elsewhere these names mean nothing.
CONTEXT_NAMES = {
    "codegen": "n_positions",
    "ctrl": "n_positions",
    "dbrx": "max_seq_len",
    "gpt-sw3": "n_positions",
    "gpt2": "n_positions",
    "gpt_bigcode": "n_positions",
    "gptj": "n_positions",
}


def read_config(folder: Path, hint: str = "") -> Any:
    """The config as transformers reads it.

    Args:
        hint: ends the message of an error.

    Raises:
        UnsupportedModel: it is of no kind that the library knows, or has a field that is wrong.
    """
    auto = importlib.import_module("transformers").AutoConfig
    try:
        config = auto.from_pretrained(folder, local_files_only=True)
        forget_padding(config)
    except Exception as error:  # of a wrong field the library raises kinds of its own
        raise UnsupportedModel(f"{folder / 'config.json'}: {one_line(error)} {hint}".rstrip()) from error
    return config


def forget_padding(config: Any) -> None:
    """Nothing here pads, and the library refuses a token for it that the vocabulary has no room for."""
    text = config.get_text_config()
    padding, vocab_size = getattr(text, "pad_token_id", None), getattr(text, "vocab_size", None)
    if isinstance(padding, int) and isinstance(vocab_size, int) and not 0 <= padding < vocab_size:
        text.pad_token_id = None


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a parsed config.json that is about text: a section of its own where a model knows pictures too."""
    part: Mapping[str, Any] = config.get("text_config") or config
    return part


def context_len(folder: Path) -> int:
    """Tokens of context, prompt and answer together.

    What the config says. Where it says nothing, the library's default for the family is meant, for whole families are
    saved without it; a tokenizer that says less is believed. More cannot be: there may be no positions for it.

    Raises:
        CorruptWeights: a file cannot be read, or the length is no number.
        UnsupportedModel: the library cannot read the config, or knows no length of its family either.
    """
    path = folder / "config.json"
    config = read_json(path)
    check_numbers(path, config)
    text = text_part(config)
    own_name = CONTEXT_NAMES.get(str(text.get("model_type")), "max_position_embeddings")
    check_count(path, own_name, text.get(own_name))
    said: int | None = text.get("max_position_embeddings") or text.get(own_name)
    if said is not None:
        return said
    default: int | None = getattr(read_config(folder).get_text_config(), "max_position_embeddings", None)
    if default is None:
        raise UnsupportedModel(f"{path} does not say how long the context is: it has no max_position_embeddings.")
    return min(default, _tokenizer_len(folder) or default)


def _tokenizer_len(folder: Path) -> int | None:
    """As the tokenizer's config says; None if it says nothing, or what no length is: many say 1e30 for "unknown"."""
    path = folder / "tokenizer_config.json"
    said = read_json(path).get("model_max_length") if path.is_file() else None
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None
