"""Pictures: POST /v1/images/generations, at once or streamed, and the files of those that are fetched by URL."""

import asyncio
import base64
import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..jobs.encode import encode_picture
from ..results import ImageResult
from .body import json_response
from .disconnect import unless_left
from .errors import USER, HttpError, Problem
from .forms import read_fields
from .image_asks import ImageAsk, read_image_ask
from .image_stream import stream_pictures
from .image_usage import usage_of
from .results import media_of, stored_file
from .server import server_of, tenant_of
from .starting import start_pictures

router = APIRouter()


@router.post("/v1/images/generations")
async def generate(request: Request) -> Response:
    """Makes pictures. Fields: `media_fields.HONOURED_BY_IMAGES`."""
    server = server_of(request)
    ask = read_image_ask(await read_fields(request), server, tenant_of(request))
    if ask.is_streamed:
        return await unless_left(request, stream_pictures(server, ask))
    return await unless_left(request, _answer(request, ask))


async def _answer(request: Request, ask: ImageAsk) -> Response:
    start_s = time.monotonic()
    if ask.is_by_url:
        await asyncio.to_thread(media_of(request).pictures.check_room, ask.n, ask.bytes_at_most)
    stream = await start_pictures(server_of(request).calls, ask)
    result = await stream.aresult()
    seconds = round(time.monotonic() - start_s, 3)
    files = await asyncio.to_thread(_encode, result, ask)
    set_id, places = await (_shelved(request, files, ask) if ask.is_by_url else _embedded(files))
    return json_response(
        {
            "id": set_id,
            "created": int(time.time()),
            "model": ask.media.alias or ask.media.front.name,
            "data": [place | {"seed": p.seed} for place, p in zip(places, result.pictures, strict=True)],
            "background": "opaque",
            "output_format": ask.picture_format,
            "size": f"{ask.media.width}x{ask.media.height}",
            "usage": usage_of(result.finished),
            "inference_time_s": seconds,
        }
    )


def _encode(result: ImageResult, ask: ImageAsk) -> list[bytes]:
    return [encode_picture(p.pixels, ask.picture_format, ask.compression) for p in result.pictures]


async def _embedded(files: Sequence[bytes]) -> tuple[str, list[dict[str, Any]]]:
    """An id for a set that nobody keeps, and the files themselves."""
    texts = await asyncio.to_thread(lambda: [base64.b64encode(data).decode() for data in files])
    return f"image_{uuid.uuid4().hex}", [{"b64_json": text} for text in texts]


async def _shelved(request: Request, files: Sequence[bytes], ask: ImageAsk) -> tuple[str, list[dict[str, Any]]]:
    """The id of the set that is kept, and where its files are."""
    set_id = await asyncio.to_thread(media_of(request).pictures.add, files, ask.picture_format)
    return set_id, [{"url": _url(request, set_id, i)} for i in range(len(files))]


def _url(request: Request, set_id: str, index: int) -> str:
    """Absolute, as the client reached us: some take anything else for base64."""
    return f"{request.base_url}v1/images/{set_id}/content?variant={index}"


@router.api_route("/v1/images/{set_id}/content", methods=["GET", "HEAD"])
async def content(request: Request, set_id: str) -> Response:
    """One picture of a set that was asked for by URL."""
    variant = request.query_params.get("variant", "0")
    file, path = await asyncio.to_thread(media_of(request).pictures.find, set_id, variant)
    return await stored_file(request, path, file.media_type, file.expires_at - time.time())


@router.post("/v1/images/edits")
@router.post("/v1/images/variations")
async def refuse(request: Request) -> Response:
    """What clients ask for and no served pipeline does."""
    text = "The served models make pictures from text alone. Use POST /v1/images/generations."
    raise HttpError(Problem(400, USER, text, "unsupported_endpoint"))
