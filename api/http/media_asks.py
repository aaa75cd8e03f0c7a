"""What images and videos are asked for in common: the prompt, a size, steps, guidance, and when it matters."""

import random
from dataclasses import dataclass
from typing import Any

from hemiola.core.bounds import shown
from hemiola.core.errors import InvalidRequest
from hemiola.diffusion.edge import Edge

from ..front.media import (
    MAX_GUIDANCE,
    MAX_PROMPT_LEN,
    MAX_SEED,
    MAX_STEPS,
    MediaFront,
    invalid_size,
    nearest_size,
    wanted_size,
)
from ..front.terms import CallTerms, missing
from .fields import Fields
from .server import Server


@dataclass(frozen=True, slots=True)
class MediaAsk:
    """A request as it was said, checked as far as it can be without a tokenizer.

    Fields:
        alias: the model as it was named; None if it was left out.
        front: the edge of the model that is meant.
        seed: chosen at random if it was left out.
        options: the rest, for `stream_image` and `stream_video`.
    """

    prompt: str
    alias: str | None
    front: MediaFront
    terms: CallTerms
    width: int
    height: int
    seed: int
    options: dict[str, Any]


def read_ask(fields: Fields, server: Server, kind: str, tenant: str) -> MediaAsk:
    """What both kinds, "image" and "video", have in common.

    Raises:
        InvalidRequest: names the field, the value and what is allowed.
        ModelNotFound: nothing is served under that name.
    """
    prompt = fields.string("prompt", max_len=MAX_PROMPT_LEN)
    if prompt is None:
        raise missing("prompt")
    if not prompt:
        raise InvalidRequest("prompt", "Invalid 'prompt': empty. At least one character is needed.")
    alias = fields.string("model", max_len=512) or None
    front = server.calls.media_front(kind, server.real_name(alias))
    width, height = _read_size(fields, front.edge)
    options: dict[str, Any] = {
        "negative_prompt": fields.string("negative_prompt", max_len=MAX_PROMPT_LEN) or "",
        "num_inference_steps": fields.integer("num_inference_steps", smallest=1, largest=MAX_STEPS),
        "guidance_scale": fields.number("guidance_scale", smallest=0.0, largest=MAX_GUIDANCE),
    }
    seed = fields.integer("seed", smallest=0, largest=MAX_SEED)
    terms = CallTerms(
        tenant=tenant,
        service_class=fields.string("service_class", max_len=64),
        priority=fields.integer("priority", smallest=-1000, largest=1000) or 0,
    )
    return MediaAsk(
        prompt, alias, front, terms, width, height, random.getrandbits(32) if seed is None else seed, options
    )


def _read_size(fields: Fields, edge: Edge) -> tuple[int, int]:
    """Width and height, from either spelling, or the model's own."""
    size = fields.string("size", max_len=100_000)
    from_size = wanted_size(size)
    sides = {
        name: fields.integer(name, smallest=1, largest=largest)
        for name, largest in (("width", edge.limits.max_width), ("height", edge.limits.max_height))
    }
    if from_size is None:
        chosen = (sides["width"] or edge.defaults.width, sides["height"] or edge.defaults.height)
        nearest = nearest_size(chosen, edge.limits)
        for name, value, valid in zip(("width", "height"), chosen, nearest, strict=True):
            if value != valid:
                raise invalid_size(name, value, edge.limits, nearest)
        return chosen
    for name, value in zip(("width", "height"), from_size, strict=True):
        if sides[name] not in (None, value):
            raise InvalidRequest(name, f"Invalid '{name}': {sides[name]}. It contradicts 'size', which says {value}.")
    if (nearest := nearest_size(from_size, edge.limits)) != from_size:
        raise invalid_size("size", shown(size), edge.limits, nearest)
    return from_size
