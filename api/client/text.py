"""Chat and completions over HTTP: what the calls' options become, and how an answer is read.

Every answer is a request of its own, with its own seed, as in the engine; what is left out is up to the server.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from hemiola.core.bounds import plain
from hemiola.core.errors import InvalidRequest
from hemiola.core.events import Event

from ..asking import Messages, Prompt
from ..front.terms import CallTerms, check_integer, check_options
from ..front.text import MAX_ANSWERS, MAX_N
from .answers import AnswerReader
from .chunks import read_chunk
from .connection import Connection
from .errors import error_of
from .sse import Frame, FrameParser
from .terms import term_fields

Push = Callable[[Event], None]
_DONE = b"[DONE]"


def chat_bodies(
    messages: Messages,
    terms: CallTerms,
    *,
    model: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
    enable_thinking: bool | None = None,
    template_options: Mapping[str, Any] | None = None,
    continue_final_message: bool = False,
    logprobs: int | None = None,
    **sampling: Any,
) -> list[dict[str, Any]]:
    """One body an answer. Options: as `TextFront.chat_requests` has them.

    Raises:
        InvalidRequest: what can be told without the model is wrong.
    """
    check_options(sampling, chat_bodies, _bodies)
    thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    body = {
        "model": model,
        "messages": [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages),
        "tools": list(tools) if tools else None,
        "tool_choice": tool_choice,
        "chat_template_kwargs": {**thinking, **(template_options or {})} or None,
        "continue_final_message": continue_final_message or None,
        "add_generation_prompt": False if continue_final_message else None,
        "logprobs": None if logprobs is None else True,
        "top_logprobs": logprobs or None,
    }
    return _bodies([body], terms, **sampling)


def completion_bodies(
    prompt: Prompt | Sequence[Prompt],
    terms: CallTerms,
    *,
    model: str | None = None,
    add_special_tokens: bool = True,
    logprobs: int | None = None,
    **sampling: Any,
) -> list[dict[str, Any]]:
    """One body an answer, those of a prompt in a row. Options: as `TextFront.completion_requests` has them.

    Raises:
        InvalidRequest: what can be told without the model is wrong.
    """
    check_options(sampling, completion_bodies, _bodies)
    if not prompt:
        raise InvalidRequest("prompt", "Invalid 'prompt': no tokens. At least one is needed.", "empty_array")
    prompts: Sequence[Any] = [prompt] if isinstance(prompt, str) or isinstance(plain(prompt[0]), int) else prompt
    common = {"model": model, "logprobs": logprobs, "add_special_tokens": None if add_special_tokens else False}
    return _bodies(
        [{"prompt": each if isinstance(each, str) else list(each), **common} for each in prompts], terms, **sampling
    )


def _bodies(
    firsts: Sequence[dict[str, Any]],
    terms: CallTerms,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] = (),
    n: int = 1,
    ignore_eos: bool = False,
    cache_salt: str = "",
) -> list[dict[str, Any]]:
    """`n` of each, with seeds `seed`, `seed + 1`, ..."""
    n = check_integer("n", n, 1, MAX_N)
    check_integer("n", n * len(firsts), 1, MAX_ANSWERS)
    if seed is not None:
        seed = check_integer("seed", seed, -(2**63), 2**63 - 1)
    common = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "stop": stop if isinstance(stop, str) else list(stop) if stop else None,
        "stop_token_ids": list(stop_token_ids) or None,
        "ignore_eos": ignore_eos or None,
        "cache_salt": cache_salt or None,
        "stream": True,
        "stream_options": {"include_usage": True},
        **term_fields(terms),
    }
    return [
        {**body, **common, "seed": None if seed is None else _wrapped(seed + i * n + j)}
        for i, body in enumerate(firsts)
        for j in range(n)
    ]


def _wrapped(seed: int) -> int:
    """Within 64 bits with a sign, as the engine counts on."""
    return (seed + 2**63) % 2**64 - 2**63


def is_thinking(body: Mapping[str, Any]) -> bool:
    """Whether the prompt ends inside a think block, as far as its text shows it."""
    prompt = body["prompt"]
    return isinstance(prompt, str) and prompt.rstrip("\n").endswith("<think>")


async def read_answer(connection: Connection, path: str, body: bytes, reader: AnswerReader, push: Push) -> None:
    """Asks, and tells the events of the answer to its end.

    Raises:
        HemiolaError: see `Connection.request`, and what the stream itself says.
    """
    async with streamed(connection, path, body) as frames:
        async for frame in frames:
            if frame.data and frame.data != _DONE:
                chunk = read_chunk(frame.data)
                if chunk.error is not None:
                    raise error_of(chunk.error, 200)
                for token in reader.read(chunk):
                    push(token)
    push(reader.finished())


@asynccontextmanager
async def streamed(connection: Connection, path: str, body: bytes) -> AsyncIterator[AsyncIterator[Frame]]:
    """The events that answer it; a whole answer, where a server does not stream, counts as one."""
    async with connection.request("POST", path, body) as response:
        yield _frames(response)


async def _frames(response: httpx.Response) -> AsyncIterator[Frame]:
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        yield Frame("", await response.aread())
        return
    parser = FrameParser()
    async for piece in response.aiter_raw():
        for frame in parser.feed(piece):
            yield frame
