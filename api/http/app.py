"""Puts the server together: routes, layers around them, and what becomes of errors."""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import hemiola
from hemiola.core.errors import HemiolaError

from ..calls import Calls
from ..operations import NoOperations, Operations
from . import ROUTES
from .auth import Auth
from .body_limit import BodyLimit
from .disconnect import ClientLeft, nobody
from .edge import Edge
from .errors import HttpError, malformed, problem_of
from .server import Server, server_of
from .settings import Settings

_EXPOSED = ["x-request-id", "retry-after", "retry-after-ms", "openai-poll-after-ms"]


def create_app(calls: Calls, settings: Settings | None = None, operations: Operations | None = None) -> FastAPI:
    """The server over these calls, as an ASGI application.

    Args:
        operations: how the engine is, and its figures; left out, `calls` are asked themselves if they know.
    """
    settings = settings or Settings()
    if operations is None:
        operations = calls if isinstance(calls, Operations) else NoOperations()
    server = Server(calls, settings, operations)
    app = FastAPI(
        title="Hemiola",
        version=hemiola.__version__,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={
            HttpError: _show,
            HemiolaError: _show,
            HTTPException: _show,
            RequestValidationError: _show_invalid,
            ClientLeft: _show_nobody,
        },
    )
    app.state.server = server
    for router in ROUTES:
        app.include_router(router)
    # The last one is the outermost: also who is turned away gets an id, and may read why in a browser.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(Auth, settings=settings)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(settings.cors_origins),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=_EXPOSED,
    )
    app.add_middleware(Edge, metrics=server.metrics)
    return app


async def _show(request: Request, error: Exception) -> Response:
    return problem_of(error, retry_after_s=server_of(request).settings.retry_after_s).response()


async def _show_invalid(request: Request, error: Any) -> Response:
    """Parameters in paths and queries; bodies are read by the routes themselves."""
    names = ", ".join(".".join(str(part) for part in each["loc"]) for each in error.errors()[:10])
    return malformed(f"Invalid parameters: {names}.").problem.response()


async def _show_nobody(request: Request, error: Exception) -> Response:
    request.scope["state"]["has_left"] = True
    return nobody()
