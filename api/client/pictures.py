"""Pictures over HTTP: one request a picture, whose progress and result come as server-sent events.

Servers that do not stream them answer at the end, with the picture or with where it is.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from hemiola.core.errors import InvalidRequest
from hemiola.core.events import Finished, Image, Progress, Usage

from ..front.media import MAX_N, MAX_SEED, wanted_size
from ..front.terms import CallTerms, check_integer, check_options
from .connection import Connection, read_json
from .decode import decode_picture
from .errors import ConnectionLost, error_of
from .sse import Frame
from .terms import term_fields
from .text import Push, streamed

UNKNOWN_SEED = -1  # of servers that do not tell it
_PROGRESS = b"progress "


def media_fields(
    prompt: str,
    terms: CallTerms,
    *,
    model: str | None = None,
    negative_prompt: str = "",
    size: str | Sequence[int] | None = None,
    num_inference_steps: int | None = None,
    guidance_scale: float | None = None,
    seed: int | None = None,
    pixel_type: str = "uint8",
) -> dict[str, Any]:
    """What bodies of pictures and clips have in common. Options: as `MediaFront.requests` has them.

    Raises:
        InvalidRequest: what can be told without the model is wrong.
    """
    if pixel_type != "uint8":
        text = f"Unsupported value for 'pixel_type': '{pixel_type}'. A server sends 'uint8'."
        raise InvalidRequest("pixel_type", text, "unsupported_value")
    if seed is not None:
        seed = check_integer("seed", seed, 0, MAX_SEED)
    sides = wanted_size(size)
    return {
        "prompt": prompt,
        "model": model,
        "negative_prompt": negative_prompt or None,
        "size": None if sides is None else "{}x{}".format(*sides),
        "num_inference_steps": num_inference_steps,
        "guidance_scale": guidance_scale,
        "seed": seed,
        **term_fields(terms),
    }


def picture_bodies(prompt: str, terms: CallTerms, *, n: int = 1, **options: Any) -> list[dict[str, Any]]:
    """`n` bodies, with seeds `seed`, `seed + 1`, ... Options: see `media_fields`."""
    check_options(options, picture_bodies, media_fields)
    n = check_integer("n", n, 1, MAX_N)
    body = {**media_fields(prompt, terms, **options), "response_format": "b64_json", "output_format": "png"}
    body["stream"] = True
    seed = body["seed"]
    return [body if seed is None else {**body, "seed": seed + i} for i in range(n)]


class PictureReader:
    """Of one picture. `model` and `seed` are as the server tells them, or as they were asked for."""

    def __init__(self, request_id: str, body: Mapping[str, Any]) -> None:
        self.model: str = body["model"] or ""
        self.seed: int = UNKNOWN_SEED if body["seed"] is None else body["seed"]
        self._id = request_id
        self._is_done = False

    async def read(self, connection: Connection, body: bytes, push: Push) -> None:
        """Asks, and tells the events to the end.

        Raises:
            HemiolaError: see `Connection.request`, and what the stream itself says.
        """
        async with streamed(connection, "/v1/images/generations", body) as frames:
            async for frame in frames:
                await self._take(connection, frame, push)
        if not self._is_done:
            raise ConnectionLost("The server's stream ended before the picture was there.")

    async def _take(self, connection: Connection, frame: Frame, push: Push) -> None:
        if frame.comment.startswith(_PROGRESS):
            told = read_json(frame.comment.removeprefix(_PROGRESS))
            push(Progress(self._id, told.get("phase", "denoise"), told["done"], told["total"]))
        if not frame.data or frame.data == b"[DONE]":
            return
        value = read_json(frame.data)
        if not isinstance(value, dict):
            raise ConnectionLost("The server sent an event that is none.")
        if value.get("error") is not None:
            raise error_of(value["error"], 200)
        self.model = value.get("model") or self.model
        if isinstance(value.get("data"), list) and value["data"]:
            await self._done(connection, value["data"][0], value.get("usage"), push)
        elif str(value.get("type", "")).endswith(".completed"):
            await self._done(connection, value, value.get("usage"), push)

    async def _done(self, connection: Connection, told: Mapping[str, Any], usage: object, push: Push) -> None:
        self.seed = told.get("seed", self.seed)
        pixels = await asyncio.to_thread(decode_picture, await _file(connection, told))
        self._is_done = True
        costs = usage if isinstance(usage, dict) else {}
        push(Image(self._id, pixels))
        spent = Usage(prompt_tokens=costs.get("input_tokens", 0), num_steps=costs.get("num_steps", 0))
        push(Finished(self._id, "done", spent))


async def _file(connection: Connection, told: Mapping[str, Any]) -> bytes:
    """The picture's file, which is there or somewhere else."""
    if told.get("b64_json"):
        try:
            return base64.b64decode(told["b64_json"], validate=True)
        except binascii.Error as error:
            raise ConnectionLost("The server sent a picture that is not base64.") from error
    if told.get("url"):
        return await connection.fetch(told["url"])
    raise ConnectionLost("The server sent no picture.")
