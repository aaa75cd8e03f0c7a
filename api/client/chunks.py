"""The chunks of chat and completion streams as the OpenAI API has them, and as whole answers where nothing is streamed.

Everything may be missing: servers differ.
"""

from typing import Any

import msgspec

from .errors import ConnectionLost


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None


class TopEntry(msgspec.Struct):
    logprob: float = 0.0


class Entry(msgspec.Struct):
    logprob: float = 0.0
    top_logprobs: list[TopEntry] | None = None


class Logprobs(msgspec.Struct):
    """`content` for chat; the two lists for completions."""

    content: list[Entry] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class Choice(msgspec.Struct):
    """`delta` or `message` for chat, `text` for completions."""

    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: Logprobs | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class Costs(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Chunk(msgspec.Struct):
    model: str | None = None
    choices: list[Choice] | None = None
    usage: Costs | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Chunk:
    """
    Raises:
        ConnectionLost: it is none.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise ConnectionLost(f"The server sent a chunk that is none: {error}.") from error
