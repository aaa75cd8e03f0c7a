"""The outermost layer of the server: gives each request an id, counts it, and answers for what nobody foresaw."""

import logging
import re
import time
import uuid

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .disconnect import CLIENT_LEFT
from .errors import problem_of
from .server import HttpMetrics

log = logging.getLogger("hemiola.http")

_ID = re.compile(rb"[\w.:-]{1,128}")


class Edge:
    """As ASGI middleware. The id is the client's own `x-request-id` if that is a sensible one."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        request_id = _request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id.decode()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:  # while the body was being read
            state["has_left"] = True
        except Exception as error:
            log.exception("Request %s failed.", state["request_id"])
            if status == 0:
                await problem_of(error).response()(scope, receive, send_with_id)
        finally:
            self._count(scope, CLIENT_LEFT if state.get("has_left") else status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.responses(route, _method(scope), str(status)).add()
        self._metrics.seconds(route).observe(seconds)
        log.info(
            "%s %s %d in %.1f ms (%s)",
            _method(scope),
            route,
            status,
            seconds * 1e3,
            scope["state"]["request_id"],
        )


def _method(scope: Scope) -> str:
    """One that exists, so that nobody fills the figures with others."""
    method: str = scope["method"]
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.fullmatch(value):
            given: bytes = value
            return given
    return uuid.uuid4().hex.encode()
