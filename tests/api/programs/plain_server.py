"""Somebody else's server: the plain OpenAI protocol and not a word more, on Starlette alone.

Unknown fields are refused. It echoes what it hears, calls the first tool that it is offered, and paints prompts as
squares. Completions may tell log probabilities of a prompt, computed by transformers.
"""

import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hemiola.tests.api.listening import listening

SAMPLING = {"model", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "stream_options", "n"}
FIELDS = {
    "chat": {"messages", "tools", "tool_choice", "logprobs", "top_logprobs"} | SAMPLING,
    "completions": {"prompt", "logprobs", "echo"} | SAMPLING,
    "images": {"prompt", "model", "size", "n", "response_format", "output_format", "stream"},
}
Logprobs = Callable[[str], dict[str, Any]]


class PlainServer:
    """
    Args:
        owner: what its models say of whose they are.
        logprobs: of a text's tokens, as `logprobs` of the API; None: it refuses `echo`.

    Fields:
        bodies: all that was asked, by kind.
    """

    def __init__(self, owner: str = "somebody", logprobs: Logprobs | None = None) -> None:
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self._owner = owner
        self._logprobs = logprobs
        self.app = Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/images/generations", self.images, methods=["POST"]),
            ]
        )

    async def models(self, request: Request) -> Response:
        model = {"id": "somebodys-model", "object": "model", "created": 1, "owned_by": self._owner}
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        if (refusal := self._note("chat", body)) is not None:
            return refusal
        last = body["messages"][-1]
        if body.get("tools") and last["role"] == "user":
            function = {"name": body["tools"][0]["function"]["name"], "arguments": json.dumps({"city": "Oslo"})}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            deltas: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [call]}]
            return _streamed(deltas, "tool_calls")
        return _streamed([{"content": "You said: "}, {"content": last["content"]}], "stop")

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        if (refusal := self._note("completions", body)) is not None:
            return refusal
        if body.get("echo") and self._logprobs is None:
            return _refused("echo", "'echo' is not supported.")
        if body.get("echo"):
            assert self._logprobs is not None
            choice = {
                "text": body["prompt"] + "!",
                "logprobs": self._logprobs(body["prompt"]),
                "finish_reason": "length",
            }
            return JSONResponse({"model": "somebodys-model", "choices": [choice], "usage": _USAGE})
        chunks: list[dict[str, Any]] = [
            {"choices": [{"text": " upon a time", "finish_reason": "stop"}]},
            {"choices": [], "usage": _USAGE},
        ]
        return StreamingResponse(_frames(chunks), media_type="text/event-stream")

    async def images(self, request: Request) -> Response:
        body = await request.json()
        if (refusal := self._note("images", body)) is not None:
            return refusal
        file = io.BytesIO()
        Image.new("RGB", (16, 16), (len(body["prompt"]), 0, 0)).save(file, "PNG")
        return JSONResponse({"created": 1, "data": [{"b64_json": base64.b64encode(file.getvalue()).decode()}]})

    def _note(self, kind: str, body: dict[str, Any]) -> Response | None:
        self.bodies.append((kind, body))
        unknown = sorted(set(body) - FIELDS[kind])
        return _refused(unknown[0], f"Unrecognized request argument supplied: {unknown[0]}") if unknown else None


_USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def _refused(param: str, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": "unknown_parameter"}
    return JSONResponse({"error": error}, status_code=400)


def _streamed(deltas: list[dict[str, Any]], reason: str) -> Response:
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": _USAGE})
    return StreamingResponse(_frames(chunks), media_type="text/event-stream")


async def _frames(chunks: list[dict[str, Any]]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps({'id': 'x', 'model': 'somebodys-model', **chunk})}\n\n"
    yield "data: [DONE]\n\n"


@contextmanager
def running(server: PlainServer) -> Iterator[str]:
    """Its address, while it runs on a thread."""
    with listening(server.app) as address:
        yield f"{address}/v1"
