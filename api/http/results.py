"""Where a server keeps its results, opened with the server and closed with it, and how their files are sent."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from ..jobs import Media, open_media
from .errors import USER, HttpError, Problem
from .server import Server, tenant_of


@asynccontextmanager
async def keep_results(app: FastAPI) -> AsyncIterator[None]:
    """As the lifespan of a router. A server without models of pictures or clips needs no folder for them."""
    server: Server = app.state.server
    if all(front.kind == "text" for front in server.calls.fronts.values()):
        yield
        return
    settings = server.settings
    async with open_media(server.calls, settings.data_dir, settings.jobs) as media:
        app.state.media = media
        yield


def media_of(request: Request) -> Media:
    """The results of the server that a request came to.

    Raises:
        HttpError: it makes none.
    """
    media: Media | None = getattr(request.app.state, "media", None)
    if media is None:
        raise HttpError(Problem(404, USER, "No model that makes pictures or videos is served here."))
    return media


def owner_of(request: Request) -> str | None:
    """Whose results the client may see; None: everybody's."""
    is_admin = request.scope["state"].get("is_admin", False)
    return None if is_admin else tenant_of(request)


async def stored_file(request: Request, path: Path, media_type: str, keep_s: float) -> Response:
    """A kept file: whole, in ranges, or only what is to be said of it, as the client asks.

    Args:
        keep_s: how long a browser may keep it; it never changes.
    """
    try:
        stat = await asyncio.to_thread(path.stat)
    except FileNotFoundError:
        raise HttpError(Problem(404, USER, "The file was deleted a moment ago.")) from None
    response = FileResponse(
        path,
        media_type=media_type,
        stat_result=stat,
        filename=path.name,
        content_disposition_type="inline",
        headers={"cache-control": f"private, max-age={max(int(keep_s), 0)}, immutable"},
    )
    if _has_it(request, response.headers["etag"]):
        kept = {name: response.headers[name] for name in ("etag", "cache-control")}
        return Response(status_code=304, headers=kept)
    if (asked := request.headers.get("range")) is not None:
        _check_range(request, asked, stat.st_size)
    return response


def _has_it(request: Request, etag: str) -> bool:
    known = request.headers.get("if-none-match", "")
    return known.strip() == "*" or etag in [each.strip().removeprefix("W/") for each in known.split(",")]


def _check_range(request: Request, asked: str, nbytes: int) -> None:
    """Takes away a range that is none, which is then as if it had not been sent (RFC 9110, 14.2).

    Raises:
        HttpError: it lies beyond the file (416).
    """
    match = _RANGE.fullmatch(asked.strip().lower())
    first, last = (match[1], match[2]) if match else ("", "")
    is_range = bool(first or last) and not (first and last and int(first) > int(last))
    if not is_range:
        request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]
    elif (first and int(first) >= nbytes) or (not first and int(last) == 0):
        headers = {"content-range": f"bytes */{nbytes}"}
        raise HttpError(Problem(416, USER, f"The range lies beyond the file's {nbytes} bytes.", headers=headers))


_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})")
