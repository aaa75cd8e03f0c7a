"""Who may come in: API keys, compared in constant time. Without any, everybody may do everything."""

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import unauthorized
from .settings import Settings

# Load balancers and browsers ask these without a key: how the server is, the page's own files, and pictures by an id
# that cannot be guessed, since no browser sends a key for those.
OPEN_PATHS = re.compile(r"/|/page/[^/]*|/health|/ready|/liveness|/ping|/v1/images/image_[0-9a-f]{32}/content")


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
                state.update(is_admin=True, tenant=_tenant(key))
                return True
            if user_idx is not None:
                state.update(is_admin=not self._admin_keys, tenant=_tenant(key))
                return True
        return scope["method"] == "OPTIONS" or OPEN_PATHS.fullmatch(scope["path"]) is not None


def _keys_of(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
        elif name == b"x-api-key":
            yield value


def _tenant(key: bytes) -> str:
    """A name for the holder of a key, which stays the same when keys are added, and does not tell the key."""
    return f"key-{hashlib.sha256(key).hexdigest()[:12]}"


def _find(key: bytes, keys: Sequence[bytes]) -> int | None:
    """Which one it is; takes as long for every key."""
    found = None
    for i, each in enumerate(keys):
        if hmac.compare_digest(key, each):
            found = i
    return found


def _encoded(keys: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(key.encode() for key in keys if key)
