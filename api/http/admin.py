"""What only an administrator may ask for."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from .body import json_response
from .server import require_admin, server_of

router = APIRouter()


@router.api_route("/flush_cache", methods=["GET", "POST"])
@router.post("/reset_prefix_cache")
async def flush_cache(request: Request) -> Response:
    """Forgets the cached tokens of prompts; those in use stay."""
    require_admin(request)
    num_tokens = await server_of(request).operations.flush_caches()
    return json_response({"success": True, "num_tokens": num_tokens})
