"""GET /v1/models: what is served, under which names."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import ModelNotFound

from ..front.text import TextFront
from .body import json_response
from .server import Server, server_of

router = APIRouter()


@router.get("/v1/models")
async def list_models(request: Request) -> Response:
    """All models, aliases as entries of their own."""
    server = server_of(request)
    return json_response({"object": "list", "data": [_entry(server, name) for name in _names(server)]})


@router.get("/v1/models/{model:path}")
async def retrieve(request: Request, model: str) -> Response:
    """One model; ids may have slashes."""
    server = server_of(request)
    if model not in _names(server):
        raise ModelNotFound(f"The model '{model[:200]}' does not exist.")
    return json_response(_entry(server, model))


def _names(server: Server) -> list[str]:
    fronts = server.calls.fronts
    aliases = [alias for alias, name in server.settings.aliases.items() if name in fronts and alias not in fronts]
    return [*fronts, *aliases]


def _entry(server: Server, name: str) -> dict[str, Any]:
    root = server.real_name(name) or name
    front = server.calls.fronts[root]
    entry: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": server.created,
        "owned_by": "hemiola",
        "root": root,
        "parent": None,
        "modalities": {"input": ["text"], "output": [front.kind]},
    }
    if isinstance(front, TextFront):
        entry["max_model_len"] = front.context_len
    return entry
