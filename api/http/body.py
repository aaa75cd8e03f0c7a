"""Reads bodies of JSON strictly: one object, no NaN, and errors that never repeat the body."""

import json
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..front.json_words import check_words
from ..front.terms import type_name
from .errors import malformed, too_large
from .server import server_of


async def read_object(request: Request) -> dict[str, Any]:
    """The body's JSON object.

    Raises:
        HttpError: it is too large, not declared as JSON, not JSON, or no object.
    """
    content_type = request.headers.get("content-type", "application/json")
    if "json" not in content_type.lower():
        raise malformed("The body has to be JSON, with 'content-type: application/json'.")
    body = await request.body()
    max_bytes = server_of(request).settings.max_json_bytes
    if len(body) > max_bytes:
        raise too_large(max_bytes)
    return parse_object(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """
    Raises:
        HttpError: no JSON, or no object.
        InvalidRequest: a string in it is not valid Unicode.
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        _check_characters(body)
        raise malformed(f"The body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise malformed("The body is not valid JSON: it is nested too deeply.") from error
    if not isinstance(value, dict):
        raise malformed(f"The body has to be a JSON object, but is {type_name(value)}.")
    return value


def _check_characters(body: bytes) -> None:
    """Names the field with half a character, such as "\\ud800": the strict decoder takes that for a body cut off.

    Raises:
        InvalidRequest: there is one.
    """
    try:
        value = json.loads(body, parse_constant=_no_word)
    except (ValueError, RecursionError):
        return  # it is at fault in other ways, which the strict decoder has told
    if isinstance(value, dict):
        check_words(value)


def _no_word(name: str) -> None:
    raise ValueError(f"JSON has no {name}.")


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Floats that JSON has no words for become null."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")
