"""What chat and completion requests have in common: sampling, streaming, and when it matters. Names and bounds only."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from hemiola.core.errors import InvalidRequest

from ..front.terms import CallTerms, check_integer, wrong_type
from ..front.text import MAX_N, MAX_SALT_LEN, MAX_STOPS, check_stops
from .fields import Fields
from .server import tenant_of

MAX_NAME_LEN = 512
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Streaming:
    """Whether and how chunks are sent."""

    is_on: bool = False
    include_usage: bool = False


def read_model(fields: Fields) -> str | None:
    """The model as it was named."""
    return fields.string("model", max_len=MAX_NAME_LEN) or None


def read_sampling(
    fields: Fields, max_tokens_name: str, default_max_tokens: int | None, context_len: int
) -> dict[str, Any]:
    """Options of `TextFront.requests`; what is left out is None or missing.

    Args:
        max_tokens_name: which field says how many tokens are generated.
    """
    top_p = fields.number("top_p", smallest=0.0, largest=1.0)
    if top_p == 0.0:
        text = "Invalid 'top_p': decimal below minimum value. Expected a value > 0, but got 0 instead."
        raise InvalidRequest("top_p", text, "decimal_below_min_value")
    max_tokens = fields.integer(max_tokens_name, smallest=1, largest=context_len)
    return {
        "max_tokens": default_max_tokens if max_tokens is None else max_tokens,
        "temperature": fields.number("temperature", smallest=0.0, largest=2.0),
        "top_p": top_p,
        "top_k": fields.integer("top_k", smallest=-1, largest=2**31),
        "seed": fields.integer("seed", smallest=-_INT64, largest=_INT64 - 1),
        "n": fields.integer("n", smallest=1, largest=MAX_N) or 1,
        "stop": read_stop(fields),
        "stop_token_ids": _read_stop_token_ids(fields),
        "ignore_eos": fields.boolean("ignore_eos") or False,
        "cache_salt": fields.string("cache_salt", max_len=MAX_SALT_LEN) or "",
    }


def read_stop(fields: Fields) -> list[str]:
    """The strings that end an answer."""
    _, stop = fields.given("stop") or ("stop", None)
    return list(check_stops(stop))


def read_streaming(fields: Fields) -> Streaming:
    """`stream`, and its options."""
    is_on = fields.boolean("stream") or False
    options = read_mapping(fields, "stream_options")
    if options is None:
        return Streaming(is_on)
    if not is_on:
        raise InvalidRequest("stream_options", "Invalid 'stream_options': only allowed when 'stream' is true.")
    for name in ("include_usage", "include_obfuscation", "continuous_usage_stats"):
        if not isinstance(options.get(name), bool | None):
            raise wrong_type(f"stream_options.{name}", "a boolean", options[name])
    if options.get("continuous_usage_stats"):
        name = "stream_options.continuous_usage_stats"
        raise InvalidRequest(name, f"Unsupported parameter: '{name}' is not supported here.", "unsupported_parameter")
    return Streaming(is_on, options.get("include_usage") or False)


def read_terms(fields: Fields, request: Request) -> CallTerms:
    """Who asks, and how soon it matters."""
    return CallTerms(
        tenant=tenant_of(request),
        priority=fields.integer("priority", smallest=-1000, largest=1000) or 0,
        service_class=fields.string("service_class", max_len=64),
    )


def read_mapping(fields: Fields, name: str) -> dict[str, Any] | None:
    """A JSON object, whatever is in it."""
    _, value = fields.given(name) or (name, None)
    if not isinstance(value, dict | None):
        raise wrong_type(name, "an object", value)
    return value


def _read_stop_token_ids(fields: Fields) -> list[int]:
    _, ids = fields.given("stop_token_ids") or ("", [])
    if not isinstance(ids, list):
        raise wrong_type("stop_token_ids", "an array of integers", ids)
    if len(ids) > MAX_STOPS:
        text = f"Invalid 'stop_token_ids': array too long. Expected {MAX_STOPS} at most, but got {len(ids)}."
        raise InvalidRequest("stop_token_ids", text, "array_above_max_length")
    return [check_integer(f"stop_token_ids[{i}]", token_id, 0, 2**31) for i, token_id in enumerate(ids)]
