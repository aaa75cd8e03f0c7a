"""Reads bodies of JSON strictly: one object, no NaN, and errors that never repeat the body."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

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
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise malformed(f"The body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise malformed("The body is not valid JSON: it is nested too deeply.") from error
    if not isinstance(value, dict):
        raise malformed(f"The body has to be a JSON object, but is {type_name(value)}.")
    return value


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Floats that JSON has no words for become null."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")
