"""What every route of one server shares, found at `request.app.state.server`."""

import logging
import time
from dataclasses import dataclass, field

from starlette.requests import Request

from hemiola.core.errors import ModelNotFound
from hemiola.core.metrics import Registry

from ..calls import Calls, Front
from ..front.text import TextFront
from ..operations import Operations
from .errors import forbidden
from .settings import Settings

log = logging.getLogger("hemiola.http")


class HttpMetrics(Registry):
    """What the server counts of HTTP alone."""

    def __init__(self) -> None:
        super().__init__()
        self.responses = self.counter(
            "hemiola_http_responses", "Responses begun; 499: the client left before.", "route", "method", "status"
        )
        self.seconds = self.histogram("hemiola_http_seconds", "From request to the end of the response.", "route")


@dataclass(frozen=True, slots=True)
class Server:
    """One server: what it calls, how it is set, since when it is there (Unix seconds)."""

    calls: Calls
    settings: Settings
    operations: Operations
    metrics: HttpMetrics = field(default_factory=HttpMetrics)
    created: int = field(default_factory=lambda: int(time.time()))

    def text_front(self, model: str | None) -> TextFront:
        """The language model of that name or alias, or the only one.

        Raises:
            ModelNotFound, InvalidRequest: as `Calls.text_front`.
        """
        return self.calls.text_front(self.real_name(model))

    def front(self, name: str) -> Front:
        """The edge of a served model of any kind.

        Raises:
            ModelNotFound: there is none of that name.
        """
        front = self.calls.fronts.get(name)
        if front is None:
            raise ModelNotFound(f"The model '{name[:200]}' does not exist.")
        return front

    def real_name(self, model: str | None) -> str | None:
        """What a model is served as, given one of its names."""
        return None if model is None else self.settings.aliases.get(model, model)


def server_of(request: Request) -> Server:
    """The server that a request came to."""
    server: Server = request.app.state.server
    return server


def tenant_of(request: Request) -> str:
    """Between whom fair shares are kept: the holders of the keys."""
    tenant: str = request.scope["state"].get("tenant", "default")
    return tenant


def require_admin(request: Request) -> None:
    """
    Raises:
        HttpError: the key is not an administrator's.
    """
    if not request.scope["state"].get("is_admin", False):
        raise forbidden()
