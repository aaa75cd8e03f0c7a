"""What is asked for with POST /v1/videos, from its fields: a clip of so many frames on the model's grid."""

import math

from hemiola.core.bounds import shown
from hemiola.core.errors import InvalidRequest
from hemiola.diffusion.edge import Edge, Limits

from ..front.media import MAX_FPS, MAX_FRAMES
from ..jobs import VideoAsk
from .fields import Fields
from .media_asks import read_ask
from .media_fields import VIDEO_FIELDS
from .server import Server

MAX_SECONDS = 3600.0


def read_video_ask(fields: Fields, server: Server, tenant: str) -> tuple[VideoAsk, str, str | None]:
    """All that makes the clip, how long it is said to be, and the model as it was named.

    Raises:
        InvalidRequest: names the field, the value and what is allowed.
        ModelNotFound: nothing is served under that name.
    """
    media = read_ask(fields, server, "video", tenant)
    defaults = media.front.edge.defaults
    fps = fields.integer("fps", smallest=1, largest=MAX_FPS) or defaults.fps
    num_frames, seconds = _read_length(fields, media.front.edge, fps)
    fields.refuse_rest(VIDEO_FIELDS, is_strict=server.settings.strict_params)
    steps, guidance = media.options["num_inference_steps"], media.options["guidance_scale"]
    ask = VideoAsk(
        model=media.front.name,
        prompt=media.prompt,
        negative_prompt=media.options["negative_prompt"],
        width=media.width,
        height=media.height,
        num_frames=num_frames,
        fps=fps,
        num_inference_steps=defaults.num_inference_steps if steps is None else steps,
        guidance_scale=defaults.guidance_scale if guidance is None else guidance,
        seed=media.seed,
        tenant=media.terms.tenant,
        service_class=media.terms.service_class,
        priority=media.terms.priority,
    )
    # Everything that can be wrong with it is said now, while somebody listens.
    media.front.requests(
        media.prompt,
        media.terms,
        negative_prompt=ask.negative_prompt,
        size=(ask.width, ask.height),
        num_frames=ask.num_frames,
        num_inference_steps=ask.num_inference_steps,
        guidance_scale=ask.guidance_scale,
        seed=ask.seed,
        fps=ask.fps,
    )
    return ask, seconds, media.alias


def _read_length(fields: Fields, edge: Edge, fps: int) -> tuple[int, str]:
    """Frames on the model's grid, and seconds: those that were asked for, or what the frames come to."""
    limits = edge.limits
    seconds = _read_seconds(fields)
    num_frames = fields.integer("num_frames", smallest=1, largest=MAX_FRAMES)
    if num_frames is not None:
        if num_frames > limits.max_frames:
            text = f"Invalid 'num_frames': {num_frames}. Allowed: {edge.most_frames} at most."
            raise InvalidRequest("num_frames", text, "integer_above_max_value")
        num_frames = nearest_length(num_frames, limits)
        return num_frames, _decimal(num_frames / fps)
    if seconds is None:
        return edge.defaults.num_frames, _decimal(edge.defaults.num_frames / fps)
    wanted = round(seconds * fps)
    if wanted > limits.max_frames:
        longest = math.floor(10 * limits.max_frames / fps) / 10
        raise InvalidRequest(
            "seconds",
            f"Invalid 'seconds': {_decimal(seconds)}. At {fps} frames per second that is {wanted} frames, and the "
            f"model makes {edge.most_frames} at most: {_decimal(longest)} seconds.",
        )
    return nearest_length(max(wanted, 1), limits), _decimal(seconds)


def _read_seconds(fields: Fields) -> float | None:
    """A number, or a number in a string, as the SDK sends it."""
    found = fields.given("seconds")
    if found is None:
        return None
    if isinstance(found[1], str):
        try:
            value = float(found[1])
        except ValueError:
            value = math.nan
        if not 0 < value <= MAX_SECONDS:
            raise InvalidRequest(
                "seconds",
                f"Invalid 'seconds': {shown(found[1])}. Allowed: a number > 0, such as '4', in a string or not.",
            )
        return value
    value = fields.number("seconds", smallest=0.0, largest=MAX_SECONDS) or 0.0
    if value == 0:
        raise InvalidRequest("seconds", "Invalid 'seconds': 0. Expected a value > 0.", "decimal_below_min_value")
    return value


def nearest_length(num_frames: int, limits: Limits) -> int:
    """The closest number of frames on the grid of 1, 1 + multiple, 1 + 2 * multiple, ..."""
    multiple = limits.frame_multiple
    rounded = (2 * (num_frames - 1) + multiple) // (2 * multiple) * multiple + 1
    return min(rounded, (limits.max_frames - 1) // multiple * multiple + 1)


def _decimal(value: float) -> str:
    """As short as it can be said: 4, 1.5, 2.125."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
