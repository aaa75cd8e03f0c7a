"""The page at `/`: chat, pictures, clips and the live step timeline, in plain HTML, CSS and JavaScript modules.

Everything comes from this package, so that it works offline and without a build step. The page is static; what it
shows, it asks the API for, with the key that the user gives it.
"""

import re
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from ..errors import USER, HttpError, Problem

STATIC = Path(__file__).parent / "static"

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAME = re.compile(r"[a-z_]+\.(css|js|svg)")
# Nothing from elsewhere, nothing inline; results are shown from memory.
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

router = APIRouter()


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page itself."""
    return _file("index.html")


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def part(request: Request, name: str) -> Response:
    """One of its modules, styles and icons."""
    if not _NAME.fullmatch(name) or not (STATIC / name).is_file():
        raise HttpError(Problem(404, USER, "The page has no such part."))
    return _file(name)


def _file(name: str) -> Response:
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return FileResponse(STATIC / name, media_type=media_type, headers=_HEADERS)
