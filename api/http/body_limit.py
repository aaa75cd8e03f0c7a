"""Refuses bodies that are too large: by what they claim to be, or as soon as they are."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import too_large


class BodyLimit:
    """As ASGI middleware."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _claimed_bytes(scope) > self._max_bytes:
            await too_large(self._max_bytes).problem.response()(scope, receive, send)
            return
        num_bytes = 0

        async def receive_limited() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise too_large(self._max_bytes)
            return message

        await self._app(scope, receive_limited, send)


def _claimed_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
