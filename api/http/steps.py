"""GET /v1/steps?since=SECONDS: which steps the engine took lately, for whoever wants to watch it."""

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import Overloaded
from hemiola.core.tracing import StepRecord

from ..front.terms import engine_clock
from .body import json_response
from .fields import Fields
from .server import server_of

MAX_STEPS = 4096
# As far back as a watcher that says nothing is told.
DEFAULT_SINCE_S = 10.0

router = APIRouter()


@router.get("/v1/steps")
async def recent_steps(request: Request) -> Response:
    """The steps that ended after `since` on the engine's clock, at most the last 4096, and what that clock says now.

    `now` less a second or so is a good `since` for the next look: a step is told of a moment after it ended.
    """
    query = Fields(request.query_params, is_form=True)
    since_s = query.number("since", smallest=-1e12, largest=1e12)
    now_s = engine_clock()
    calls = server_of(request).calls
    try:
        records = await asyncio.to_thread(calls.recent_steps, now_s - DEFAULT_SINCE_S if since_s is None else since_s)
    except TimeoutError as error:
        raise Overloaded("The engine is in the middle of a long step.") from error
    return json_response(
        {"object": "list", "now": round(now_s, 6), "data": [_shown(record) for record in records[-MAX_STEPS:]]}
    )


def _shown(step: StepRecord) -> dict[str, Any]:
    """Without the requests' ids, which are nobody's but their owners'."""
    return {
        "lane": step.lane,
        "model": step.model,
        "phase": step.phase,
        "quantum": step.quantum,
        "rows": step.rows,
        "start_s": round(step.start_s, 6),
        "end_s": round(step.end_s, 6),
    }
