"""How a model says that it wants to be sampled, and which tokens end its turn: the defaults of its requests. No torch.

What no request could ask for is refused when the model is opened, by file and field: else every request that leaves the
field out would fail under a name that nobody sent. Null says nothing.
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


_SAMPLING: Mapping[str, tuple[Callable[[Any], float], str]] = {
    "temperature": (check_temperature, f"a number from 0 to {MAX_TEMPERATURE:g}"),
    "top_p": (check_top_p, "a number above 0 and at most 1"),
    "top_k": (check_top_k, f"a whole number from -1 to {MAX_TOP_K:,}"),
}


def read_defaults(folder: Path) -> GenerationDefaults:
    """What generation_config.json says; ends of a turn from config.json, where it names none.

    Greedy where the model says that it does not sample; the fields of sampling that are wrong are then only warned of.

    Raises:
        CorruptWeights: names the file, the field, its value and what is allowed.
    """
    path = folder / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    samples = generation.get("do_sample")
    if not isinstance(samples, bool | None):
        raise _wrong(path, "do_sample", samples, "true or false")
    given = dict(_sampling(path, generation, is_used=samples is not False))
    return GenerationDefaults(
        **(given if samples is not False else {"temperature": 0.0}),
        stop_token_ids=_ends(folder, path, generation),
    )


def _sampling(path: Path, generation: Mapping[str, Any], *, is_used: bool) -> Iterator[tuple[str, Any]]:
    for field, (check, allowed) in _SAMPLING.items():
        value = generation.get(field)
        if value is None:
            continue
        try:
            yield field, check(value)
        except InvalidRequest as error:
            wrong = _wrong(path, field, value, allowed)
            if is_used:
                raise wrong from error
            log.warning("%s It is not used, for do_sample is false.", wrong)


def _ends(folder: Path, path: Path, generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The first that says anything: the generation config, the config, its part about text."""
    config_path = folder / "config.json"
    config = read_json(config_path)
    for file, said in ((path, generation), (config_path, config), (config_path, text_part(config))):
        if ids := _token_ids(file, said.get("eos_token_id")):
            return _possible(file, ids)
    return ()


def _token_ids(path: Path, value: Any) -> list[int]:
    ids = [each for each in (value if isinstance(value, list) else [value]) if each is not None]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each <= MAX_TOKEN_ID for each in ids):
        raise _wrong(path, "eos_token_id", value, f"a token id of at most {MAX_TOKEN_ID:,}, or a list of them")
    return ids


def _possible(path: Path, ids: list[int]) -> tuple[int, ...]:
    """Those that a model can say: some configs have -1 for "none"."""
    if min(ids) < 0:
        log.warning("%s: eos_token_id has %d. No token has an id below 0: no turn ends with it.", path, min(ids))
    return tuple(each for each in ids if each >= 0)


def _wrong(path: Path, field: str, value: Any, allowed: str) -> CorruptWeights:
    return CorruptWeights(f"{path}: {field} is {shown(value)}. Allowed: {allowed}.")
