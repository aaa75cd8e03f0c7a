"""Whether the numbers in a language model's config.json can be a model's at all, said by file and field.

Libraries tell of a wrong one by a traceback, or not before the first request. Knows the names that most models share.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..bounds import shown
from ..errors import CorruptWeights

_COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "n_positions",
)


def check_numbers(path: Path, config: Mapping[str, Any]) -> None:
    """Looks at a parsed config.json, and at the part of it that is about text.

    Raises:
        CorruptWeights: names the file, the field, its value and what is allowed.
    """
    for each in (config, config.get("text_config")):
        if isinstance(each, Mapping):
            for field in _COUNTS:
                _check_count(path, field, each.get(field))
            _check_against_each_other(path, each)


def _check_count(path: Path, field: str, value: object) -> None:
    """Some models have one for each layer."""
    for each in _each(value):
        if isinstance(each, bool) or not isinstance(each, int) or each < 1:
            raise CorruptWeights(f"{path}: {field} is {shown(value)}. Allowed: a whole number above 0.")


def _each(value: object) -> Iterator[object]:
    if isinstance(value, list):
        yield from value
    elif value is not None:
        yield value


def _check_against_each_other(path: Path, config: Mapping[str, Any]) -> None:
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(groups, int) and heads % groups:
        raise CorruptWeights(
            f"{path}: num_attention_heads is {heads}. Allowed: multiples of num_key_value_heads, which is {groups}."
        )
