"""Who may come in: API keys, compared in constant time. Without any, everybody may do everything."""

import hmac
from collections.abc import Iterator, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import unauthorized
from .settings import Settings

# Load balancers and browsers ask these without a key.
OPEN_PATHS = frozenset({"/health", "/ready", "/liveness", "/ping"})


class Auth:
    """As ASGI middleware. Puts `is_admin` and `tenant` into the scope's state."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._user_keys = _encoded(settings.api_keys)
        self._admin_keys = _encoded(settings.admin_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._lets_in(scope):
            await unauthorized().problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _lets_in(self, scope: Scope) -> bool:
        state = scope.setdefault("state", {})
        if not (self._user_keys or self._admin_keys):
            state["is_admin"] = True
            return True
        for key in _keys_of(scope):
            admin_idx, user_idx = _find(key, self._admin_keys), _find(key, self._user_keys)
            if admin_idx is not None:
                state.update(is_admin=True, tenant=f"admin-{admin_idx}")
                return True
            if user_idx is not None:
                state.update(is_admin=not self._admin_keys, tenant=f"key-{user_idx}")
                return True
        return scope["method"] == "OPTIONS" or scope["path"] in OPEN_PATHS


def _keys_of(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
        elif name == b"x-api-key":
            yield value


def _find(key: bytes, keys: Sequence[bytes]) -> int | None:
    """Which one it is; takes as long for every key."""
    found = None
    for i, each in enumerate(keys):
        if hmac.compare_digest(key, each):
            found = i
    return found


def _encoded(keys: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(key.encode() for key in keys if key)
