"""Clips: /v1/videos creates jobs, tells of them, cancels and deletes them, and sends their files.

A job outlives the request and the server; see `hemiola.api.jobs`.
"""

import asyncio
import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import InvalidRequest

from ..jobs import ResultNotFound, VideoJob
from .body import json_response
from .errors import USER, HttpError, Problem
from .fields import Fields, plain
from .forms import read_fields
from .results import keep_results, media_of, owner_of, stored_file
from .server import server_of, tenant_of
from .video_asks import read_video_ask

# Clients that wait ask again after this time.
POLL_AFTER_MS = 500
MAX_PAGE, DEFAULT_PAGE = 100, 20
# Of `variant`: what clients say, and what the file is called. A number is the how-manieth clip; there is one.
VARIANTS = {"video": "video", "0": "video", "thumbnail": "thumbnail", "spritesheet": "spritesheet"}

router = APIRouter(lifespan=keep_results)


@router.post("/v1/videos")
async def create(request: Request) -> Response:
    """Queues a clip. Fields: `media_fields.HONOURED_BY_VIDEOS`."""
    fields = await read_fields(request)
    ask, seconds, alias = await asyncio.to_thread(read_video_ask, fields, server_of(request), tenant_of(request))
    job = await media_of(request).videos.create(ask, seconds=seconds, model_alias=alias)
    return _told(request, job)


@router.get("/v1/videos")
async def list_jobs(request: Request) -> Response:
    """A page of jobs, the latest first unless `order=asc`."""
    query = Fields(request.query_params, is_form=True)
    limit = query.integer("limit", smallest=1, largest=MAX_PAGE) or DEFAULT_PAGE
    order = query.choice("order", allowed=("asc", "desc"))
    after = query.string("after", max_len=200) or None
    try:
        jobs, has_more = await media_of(request).videos.page(
            after, limit, is_ascending=order == "asc", tenant=owner_of(request)
        )
    except ResultNotFound as error:
        raise InvalidRequest("after", error.message) from error
    return json_response(
        {
            "object": "list",
            "data": [shown_job(request, job) for job in jobs],
            "first_id": jobs[0].id if jobs else None,
            "last_id": jobs[-1].id if jobs else None,
            "has_more": has_more,
        }
    )


@router.get("/v1/videos/{job_id}")
async def retrieve(request: Request, job_id: str) -> Response:
    """A job as it is now; that it failed is no error of this request."""
    return _told(request, await media_of(request).videos.get(job_id, owner_of(request)))


@router.delete("/v1/videos/{job_id}")
async def delete(request: Request, job_id: str) -> Response:
    """Ends the job, if it has not ended, and removes its files."""
    videos = media_of(request).videos
    await videos.get(job_id, owner_of(request))
    await videos.delete(job_id)
    return json_response({"id": job_id, "object": "video.deleted", "deleted": True})


@router.post("/v1/videos/{job_id}/cancel")
async def cancel(request: Request, job_id: str) -> Response:
    """Ends the job, if it has not ended; it is kept as failed."""
    videos = media_of(request).videos
    await videos.get(job_id, owner_of(request))
    return _told(request, await videos.cancel(job_id))


@router.api_route("/v1/videos/{job_id}/content", methods=["GET", "HEAD"])
async def content(request: Request, job_id: str) -> Response:
    """The clip, or a picture of it."""
    videos = media_of(request).videos
    given = request.query_params.get("variant", "video")
    variant = VARIANTS.get(given)
    if variant is None:
        allowed = ", ".join(f"'{name}'" for name in VARIANTS)
        raise InvalidRequest("variant", f"Invalid 'variant': '{plain(given)}'. Allowed: {allowed}.")
    job = await videos.get(job_id, owner_of(request))
    if job.is_unfinished:
        headers = {"retry-after": "1", "openai-poll-after-ms": str(POLL_AFTER_MS)}
        text = f"The video is not ready: it is {job.status.replace('_', ' ')}, {job.progress} % done."
        raise HttpError(Problem(404, USER, text, "video_not_ready", headers=headers))
    if job.status == "failed":
        raise HttpError(Problem(400, USER, f"The video failed: {job.error_message}", job.error_code))
    found = await videos.file(job_id, variant)
    if found is None:
        raise ResultNotFound("video", f"There is no video '{plain(job_id)}', or it has expired.")
    file, path = found
    return await stored_file(request, path, file.media_type, file.expires_at - time.time())


@router.post("/v1/videos/edits")
@router.post("/v1/videos/extensions")
@router.post("/v1/videos/characters")
@router.post("/v1/videos/{job_id}/remix")
async def refuse(request: Request) -> Response:
    """What clients ask for and no served pipeline does."""
    text = "The served models make videos from text alone. Use POST /v1/videos."
    raise HttpError(Problem(400, USER, text, "unsupported_endpoint"))


def _told(request: Request, job: VideoJob) -> Response:
    headers = {"openai-poll-after-ms": str(POLL_AFTER_MS)} if job.is_unfinished else None
    return json_response(shown_job(request, job), headers=headers)


def shown_job(request: Request, job: VideoJob) -> dict[str, Any]:
    """A job as clients see it."""
    ask = job.ask
    failed = {"code": job.error_code, "message": job.error_message}
    is_done = job.status == "completed"
    return {
        "id": job.id,
        "object": "video",
        "model": job.model_alias or ask.model,
        "status": job.status,
        "progress": job.progress,
        "created_at": int(job.created_at),
        "completed_at": _whole(job.completed_at),
        "expires_at": _whole(job.expires_at),
        "error": failed if job.status == "failed" else None,
        "prompt": ask.prompt,
        "remixed_from_video_id": None,
        "seconds": job.seconds,
        "size": f"{ask.width}x{ask.height}",
        "fps": ask.fps,
        "num_frames": ask.num_frames,
        "num_inference_steps": ask.num_inference_steps,
        "guidance_scale": ask.guidance_scale,
        "seed": ask.seed,
        "inference_time_s": None if job.inference_time_s is None else round(job.inference_time_s, 3),
        "url": f"{request.base_url}v1/videos/{job.id}/content" if is_done else None,
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
