"""From errors to HTTP: status, type, code and field, in this one place, in the vocabulary of the OpenAI API.

Messages are for people; they are bounded, and what a failure of ours says of files and addresses is left out.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from hemiola.core.errors import (
    CannotFit,
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

from ..jobs.errors import QuotaExceeded, ResultNotFound, StorageFailed
from ..programs.reading import AnswerUnfit

MAX_MESSAGE_LEN = 1000
USER, SERVER, PERMISSION = "invalid_request_error", "server_error", "permission_error"
RATE = "rate_limit_error"

# Class -> (status, type, code; None: the error's own). The first that fits counts. A new error of a route: a new row.
RULES: tuple[tuple[type[HemiolaError], int, str, str | None], ...] = (
    (ResultNotFound, 404, USER, None),
    (QuotaExceeded, 429, RATE, None),
    (StorageFailed, 500, SERVER, "internal_error"),
    (InvalidRequest, 400, USER, None),
    (ModelNotFound, 404, USER, None),
    (UnsupportedModel, 400, USER, None),
    (CannotFit, 400, USER, None),
    (AnswerUnfit, 400, USER, None),
    (RequestAborted, 400, USER, None),  # not a 5xx: clients would send it again
    (Overloaded, 503, SERVER, None),
    (CorruptWeights, 500, SERVER, "internal_error"),
    (StepFailed, 500, SERVER, "internal_error"),
    (EngineDied, 500, SERVER, "internal_error"),
    (HemiolaError, 500, SERVER, "internal_error"),
)

_PATH = re.compile(r"(?<![\w/:])/[\w.+-]+(?:/[\w.+@-]+)+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a client is told of it."""

    status: int
    type: str
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def envelope(self) -> dict[str, Any]:
        """The body, and what a stream that has begun says in a frame."""
        message = self.message if self.status < 500 else _without_places(self.message)
        return {
            "error": {
                "message": _bounded(message),
                "type": self.type,
                "param": None if self.param is None else _bounded(self.param, 200),
                "code": self.code,
            }
        }

    def response(self) -> Response:
        body = msgspec.json.encode(self.envelope)
        return Response(body, self.status, dict(self.headers), media_type="application/json")


class HttpError(Exception):
    """A problem that only HTTP knows: routes, methods, keys, bodies."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_of(error: BaseException, *, retry_after_s: int = 2) -> Problem:
    """What a client is told of an error. One that nobody foresaw tells it nothing."""
    if isinstance(error, HttpError):
        return error.problem
    if isinstance(error, HTTPException):
        return _of_routing(error)
    if isinstance(error, TimeoutError):
        return Problem(504, SERVER, "The time limit has passed.", "timeout")
    for kind, status, type_, code in RULES:
        if isinstance(error, kind):
            headers = {"retry-after": str(_wish_s(error, retry_after_s))} if status == 503 else {}
            if status == 429:  # of a quota, which asking again at once does not mend
                headers = {"x-should-retry": "false"}
            return Problem(status, type_, error.message, code or error.code, param_of(error), headers)
    return Problem(500, SERVER, "The server failed to handle this request.", "internal_error")


def _wish_s(error: BaseException, least_s: int) -> int:
    """After how many seconds it is worth trying again."""
    known_s = error.retry_after_s if isinstance(error, Overloaded) else None
    return max(least_s, math.ceil(known_s or 0))


def param_of(error: HemiolaError) -> str | None:
    """The field at fault."""
    if isinstance(error, InvalidRequest):
        return error.param
    return "model" if isinstance(error, ModelNotFound) else None


def _of_routing(error: HTTPException) -> Problem:
    """What the framework raises: no such route, or not with this method."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        text = f"Not allowed with this method. Allowed: {headers.get('Allow', headers.get('allow', 'others'))}."
        return Problem(405, USER, text, "method_not_allowed", headers=headers)
    if error.status_code == 404:
        return Problem(404, USER, "There is no such route or resource here.", None, headers=headers)
    return Problem(error.status_code, USER, str(error.detail), None, headers=headers)


def too_large(max_bytes: int) -> HttpError:
    text = f"The body is too large: at most {max_bytes} bytes are allowed."
    return HttpError(Problem(413, USER, text, "request_too_large"))


def unauthorized() -> HttpError:
    text = "Missing or wrong API key. Send it as 'Authorization: Bearer KEY'."
    headers = {"www-authenticate": "Bearer"}
    return HttpError(Problem(401, USER, text, "invalid_api_key", headers=headers))


def forbidden() -> HttpError:
    return HttpError(
        Problem(403, PERMISSION, "This key may not use the administrator's routes.", "insufficient_permissions")
    )


def malformed(message: str) -> HttpError:
    """A body that cannot be read at all."""
    return HttpError(Problem(400, USER, message))


def _without_places(message: str) -> str:
    return _ADDRESS.sub("0x…", _PATH.sub("…", message))


def _bounded(text: str, max_len: int = MAX_MESSAGE_LEN) -> str:
    """Shortened, and with characters that no UTF-8 has replaced."""
    text = text if len(text) <= max_len else f"{text[: max_len - 1]}…"
    return text.encode("utf-8", "replace").decode("utf-8")
