"""How a model says that it wants to be sampled, and which tokens end its turn: the defaults of its requests. No torch.

What no request could ask for is found when the model is opened, and named by file and field: else every request that
leaves the field out would fail under a name that nobody sent. Files are written for other libraries, which allow more:
the nearest that a request may ask for is used then, with a warning. What means nothing is refused. Null says nothing.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hemiola.core.bounds import shown
from hemiola.core.errors import CorruptWeights, InvalidRequest
from hemiola.core.hub import text_part
from hemiola.core.hub.source import read_json

from .terms import check_integer, check_number

log = logging.getLogger(__name__)

MAX_TEMPERATURE = 2.0
# What a top_p of 0 becomes. It keeps the likeliest token alone, as transformers reads a 0.
LEAST_TOP_P = 1e-6
MAX_TOP_K = 2**31
MAX_TOKEN_ID = 2**31


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What holds where a request says nothing. See `core.request.Sampling` for the fields."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: tuple[int, ...] = ()


def check_temperature(value: Any) -> float:
    """Raises InvalidRequest, as the others."""
    return check_number("temperature", value, 0.0, MAX_TEMPERATURE)


def check_top_p(value: Any) -> float:
    if check_number("top_p", value, 0.0, 1.0) == 0:
        raise InvalidRequest("top_p", "Invalid 'top_p': 0. Expected a value > 0.", "decimal_below_min_value")
    return float(value)


def check_top_k(value: Any) -> int:
    return max(check_integer("top_k", value, -1, MAX_TOP_K), 0)


def _written_top_k(value: Any) -> int:
    return check_top_k(_whole(value))


def _nearest_temperature(value: float) -> float:
    return min(value, MAX_TEMPERATURE)


def _nearest_top_p(value: float) -> float:
    return min(max(value, LEAST_TOP_P), 1.0)


def _nearest_top_k(value: float) -> int:
    """Never 0, which would keep all tokens where almost none were asked for."""
    return max(round(min(value, MAX_TOP_K)), 1)


# Of each field: what a request may ask for, the nearest of that to a number from 0, and what is allowed in words.
_SAMPLING: Mapping[str, tuple[Callable[[Any], float], Callable[[float], float], str]] = {
    "temperature": (check_temperature, _nearest_temperature, f"a number from 0 to {MAX_TEMPERATURE:g}"),
    "top_p": (check_top_p, _nearest_top_p, "a number above 0 and at most 1"),
    "top_k": (_written_top_k, _nearest_top_k, f"a whole number from -1 to {MAX_TOP_K:,}"),
}


def read_defaults(folder: Path) -> GenerationDefaults:
    """What generation_config.json says; ends of a turn from config.json, where it names none that can be.

    Greedy where the model says that it does not sample; the fields of sampling that are wrong are then only warned of.

    Raises:
        CorruptWeights: names the file, the field, its value and what is allowed.
    """
    path = folder / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    samples = generation.get("do_sample")
    if samples not in (None, 0, 1):  # and so false and true
        raise _wrong(path, "do_sample", samples, "true or false")
    is_greedy = samples == 0
    given = dict(_sampling(path, generation, is_used=not is_greedy))
    return GenerationDefaults(
        **({"temperature": 0.0} if is_greedy else given),
        stop_token_ids=_ends(folder, path, generation),
    )


def _sampling(path: Path, generation: Mapping[str, Any], *, is_used: bool) -> Iterator[tuple[str, Any]]:
    for field, (check, nearest, allowed) in _SAMPLING.items():
        value = generation.get(field)
        if value is None:
            continue
        try:
            yield field, check(value)
        except InvalidRequest as error:
            wrong = _wrong(path, field, value, allowed)
            if not is_used:
                log.warning("%s It is not used, for do_sample is false.", wrong)
            elif _has_nearest(value):
                near = nearest(value)
                log.warning("%s The nearest is used: %s.", wrong, near)
                yield field, near
            else:
                raise wrong from error


def _has_nearest(value: Any) -> bool:
    """Whether it is a number from 0. NaN is not, and what is negative has no meaning that could be come near to."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _whole(value: Any) -> Any:
    """A whole number that is written as a float, as an int; everything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _ends(folder: Path, path: Path, generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The first that name any that can be: the generation config, the config, its part about text."""
    config_path = folder / "config.json"
    config = read_json(config_path)
    said = [(path, generation), (config_path, config)]
    if (text := text_part(config)) is not config:
        said.append((config_path, text))
    for file, part in said:
        if ids := _possible(file, _token_ids(file, part.get("eos_token_id"))):
            return ids
    return ()


def _token_ids(path: Path, value: Any) -> list[int]:
    ids = [_whole(each) for each in (value if isinstance(value, list) else [value]) if each is not None]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each <= MAX_TOKEN_ID for each in ids):
        raise _wrong(path, "eos_token_id", value, f"a token id of at most {MAX_TOKEN_ID:,}, or a list of them")
    return ids


def _possible(path: Path, ids: list[int]) -> tuple[int, ...]:
    """Those that a model can say: some configs have -1 for "none"."""
    least = min(ids, default=0)
    if least < 0:
        log.warning("%s: eos_token_id has %d. No token has an id below 0: no turn ends with it.", path, least)
    return tuple(each for each in ids if each >= 0)


def _wrong(path: Path, field: str, value: Any, allowed: str) -> CorruptWeights:
    return CorruptWeights(f"{path}: {field} is {shown(value)}. Allowed: {allowed}.")
