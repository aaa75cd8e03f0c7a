"""Whether the numbers in a language model's config.json can be a model's at all, said by file and field.

Libraries tell of a wrong one by a traceback, or not before the first request. Knows the names that most models share.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..bounds import shown
from ..errors import CorruptWeights

# Some models have one of these for each layer.
_COUNTS_OF_LAYERS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
_COUNTS = ("vocab_size", "max_position_embeddings", "n_positions")


def check_numbers(path: Path, config: Mapping[str, Any]) -> None:
    """Looks at a parsed config.json, and at the part of it that is about text.

    Raises:
        CorruptWeights: names the file, the field, its value and what is allowed.
    """
    text = config.get("text_config")
    if not isinstance(text, Mapping | None):
        raise CorruptWeights(f"{path}: text_config is {shown(text)}. Allowed: an object.")
    for part in (config, text or {}):
        for field in _COUNTS_OF_LAYERS:
            value = part.get(field)
            if not isinstance(value, list) or not all(map(_is_count, value)):
                check_count(path, field, value)
        for field in _COUNTS:
            check_count(path, field, part.get(field))
        _check_against_each_other(path, part)


def check_count(path: Path, field: str, value: object) -> None:
    """Refuses what is there and counts nothing.

    Raises:
        CorruptWeights: as `check_numbers`.
    """
    if value is not None and not _is_count(value):
        raise CorruptWeights(f"{path}: {field} is {shown(value)}. Allowed: a whole number above 0.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _check_against_each_other(path: Path, config: Mapping[str, Any]) -> None:
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(groups, int) and heads % groups:
        raise CorruptWeights(
            f"{path}: num_attention_heads is {heads}. Allowed: multiples of num_key_value_heads, which is {groups}."
        )
