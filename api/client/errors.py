"""From what a server says went wrong back to the errors of the engine, and what can go wrong on the way.

HemiolaError
├── Unreachable      nobody answers at that address; nothing was sent
├── ConnectionLost   the connection ended before the answer did, or what came is none
└── NoAnswer         nothing came for too long
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hemiola.core.errors import (
    CannotFit,
    ContextTooLong,
    CorruptWeights,
    EngineDied,
    HemiolaError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    RequestAborted,
    StepFailed,
    UnsupportedModel,
)


class Unreachable(HemiolaError):
    """No connection could be made; nothing was sent."""

    code = "server_unreachable"


class ConnectionLost(HemiolaError):
    """The connection ended before the answer did, or what came is no answer of such a server."""

    code = "connection_lost"


class NoAnswer(HemiolaError):
    """Nothing came for as long as the client waits."""

    code = "timeout"


_PLAIN = {
    error.code: error
    for error in (
        ModelNotFound,
        UnsupportedModel,
        CorruptWeights,
        Overloaded,
        RequestAborted,
        StepFailed,
        EngineDied,
    )
}
_BY_STATUS: dict[int, type[HemiolaError]] = {404: HemiolaError, 408: NoAnswer, 429: Overloaded, 503: Overloaded}
_CANNOT_FIT = re.compile(r"(.*) needs ([\d.]+) (KiB|MiB), but ([\d.]+) \3 can be had at most\.(?: (.+))?", re.DOTALL)
_UNITS = {"KiB": 2**10, "MiB": 2**20}


def error_of(told: object, status: int) -> HemiolaError:
    """The error that stands in a body or frame, `{"message", "type", "param", "code"}`, sent with that status."""
    if not isinstance(told, Mapping):
        return _coded(_BY_STATUS.get(status, HemiolaError), f"The server answered with status {status}.", None)
    message, param = str(told.get("message") or f"Status {status}."), told.get("param")
    code = None if told.get("code") is None else str(told["code"])
    if code in _PLAIN:
        return _PLAIN[code](message)
    if code == CannotFit.code and (match := _CANNOT_FIT.fullmatch(message)):
        what, needed, unit, available, hint = match.groups()
        num_needed, num_available = (round(float(each) * _UNITS[unit]) for each in (needed, available))
        return CannotFit(what, num_needed, num_available, hint or "")
    if code == ContextTooLong.code:
        return ContextTooLong(str(param or "prompt"), message)
    if status in _BY_STATUS:
        return _coded(_BY_STATUS[status], message, code)
    if 400 <= status < 500:
        return InvalidRequest(str(param or ("api_key" if status in (401, 403) else "request")), message, code)
    return _coded(HemiolaError, message, code)


def error_of_body(body: bytes, status: int) -> HemiolaError:
    """The error that a response of that status stands for."""
    try:
        value: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return error_of(None, status)
    return error_of(value.get("error", value) if isinstance(value, Mapping) else None, status)


def _coded(kind: type[HemiolaError], message: str, code: str | None) -> HemiolaError:
    error = kind(message)
    if code is not None:
        error.code = code
    return error
