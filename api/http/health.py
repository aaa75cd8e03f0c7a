"""GET /health and its relatives: whether the server is there, and whether it takes requests. Also what it is."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

import hemiola

from ..calls import Front
from ..front.text import TextFront
from .body import json_response
from .errors import SERVER, HttpError, Problem
from .server import Server, server_of

router = APIRouter()
_READ = ["GET", "HEAD"]


@router.api_route("/health", methods=_READ)
@router.api_route("/ready", methods=_READ)
async def health(request: Request) -> Response:
    """503 while requests are not taken. Answered without asking the engine."""
    condition = server_of(request).operations.condition()
    if condition == "ready":
        return json_response({"status": "ok"})
    retry_after_s = server_of(request).settings.retry_after_s
    return json_response({"status": condition}, 503, {"retry-after": str(retry_after_s)})


@router.api_route("/liveness", methods=_READ)
@router.api_route("/ping", methods=_READ)
async def liveness() -> Response:
    """The server speaks HTTP."""
    return json_response({"status": "ok"})


@router.api_route("/health_generate", methods=_READ)
async def health_generate(request: Request) -> Response:
    """One real token of the first language model; as /health where there is none."""
    calls = server_of(request).calls
    front = next((front for front in calls.fronts.values() if isinstance(front, TextFront)), None)
    response = await health(request)
    if front is None or response.status_code != 200:
        return response
    completion = await calls.acomplete([front.tokenizer.vocab_size // 2], model=front.name, max_tokens=1)
    if len(completion.answers) != 1:
        raise HttpError(Problem(500, SERVER, "Nothing was generated.", "internal_error"))
    return response


@router.get("/version")
async def version() -> Response:
    return json_response({"version": hemiola.__version__})


@router.get("/server_info")
@router.get("/get_server_info")
async def server_info(request: Request) -> Response:
    """What the server is and serves."""
    server = server_of(request)
    return json_response(
        {
            "version": hemiola.__version__,
            "status": server.operations.condition(),
            "created": server.created,
            "models": [_model_info(server, front) for front in server.calls.fronts.values()],
        }
    )


@router.get("/model_info")
@router.get("/get_model_info")
async def model_info(request: Request, model: str | None = None) -> Response:
    """One model's; the first one's if none is named."""
    server = server_of(request)
    name = server.real_name(model)
    front = next(iter(server.calls.fronts.values())) if name is None else server.front(name)
    return json_response(_model_info(server, front))


def _model_info(server: Server, front: Front) -> dict[str, Any]:
    info: dict[str, Any] = {
        "served_model_name": front.name,
        "is_generation": True,
        "output": front.kind,
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "aliases": [alias for alias, name in server.settings.aliases.items() if name == front.name],
    }
    if isinstance(front, TextFront):
        info["max_model_len"] = front.context_len
    return info
