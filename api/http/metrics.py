"""GET /metrics: the engine's figures and those of HTTP, in Prometheus' text format."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from .server import server_of

router = APIRouter()


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    server = server_of(request)
    text = server.operations.metrics_text() + server.metrics.render()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
