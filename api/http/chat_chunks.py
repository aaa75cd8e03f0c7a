"""A chat stream's chunks: first each choice's role, then what the answers add, each choice's end, the usage.

A token costs one `encode` of its text; all else was encoded before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hemiola.core.events import Event, Failed, Finished, Token, Usage
from hemiola.core.request import TextRequest

from ..front.answers import Delta
from ..front.text import TextFront, call_id, finish_reason
from ..results import total_usage
from ..stream import error_of
from .chunks import ChunkParts, encode, shown_stop
from .logprobs import chat_entry
from .usage import usage_json


@dataclass(frozen=True, slots=True)
class Shown:
    """What a caller wants to see of answers.

    Fields:
        reasoning_field: what reasoning is called; None: it is left out.
        has_tools: tools were offered.
        is_parallel: all calls of an answer, not only the first.
        has_logprobs: how likely each token was.
    """

    reasoning_field: str | None
    has_tools: bool
    is_parallel: bool
    has_logprobs: bool

    def hides(self, delta: Delta) -> bool:
        """Whether it is not told."""
        if delta.kind == "reasoning":
            return self.reasoning_field is None
        return delta.call_idx > 0 and not self.is_parallel


class ChatChunks:
    """Of one call; see `chunks.Chunks`.

    Args:
        requests: in the order of the choices.
    """

    def __init__(
        self, parts: ChunkParts, front: TextFront, requests: Sequence[TextRequest], shown: Shown, *, has_usage: bool
    ) -> None:
        self._parts = parts
        self._has_usage = has_usage
        self._choices = {request.id: _Choice(i, parts, front, request, shown) for i, request in enumerate(requests)}

    def opening(self) -> bytes:
        """All roles, in order, before anything else: clients add choices as they come."""
        return b"".join(choice.role() for choice in self._choices.values())

    def of(self, events: Sequence[Event]) -> bytes:
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Token):
                frames += self._choices[event.request_id].token(event)
            elif isinstance(event, Finished):
                frames += self._choices[event.request_id].end(event)
            elif isinstance(event, Failed):
                raise error_of(event)
        return b"".join(frames)

    def closing(self) -> bytes:
        if not self._has_usage:
            return b""
        choices = self._choices.values()
        usage = total_usage([choice.usage for choice in choices], len(choices))
        return self._parts.usage(usage_json(usage, sum(choice.num_reasoning for choice in choices)))


class _Choice:
    """One answer. `num_reasoning` counts tokens of reasoning; `usage` is known at the end."""

    def __init__(self, index: int, parts: ChunkParts, front: TextFront, request: TextRequest, shown: Shown) -> None:
        self.usage = Usage()
        self.num_reasoning = 0
        self._front = front
        self._request = request
        self._shown = shown
        self._parser = front.parser(request, has_tools=shown.has_tools)
        self._before = parts.before(index) + b'"delta":'
        self._after = parts.after
        self._unfinished = b',"logprobs":null,"finish_reason":null' + parts.after
        self._reasoning = b'{"%s":' % (shown.reasoning_field or "").encode()
        self._logprobs: list[dict[str, Any]] = []

    def role(self) -> bytes:
        return self._before + b'{"role":"assistant","content":""}' + self._unfinished

    def token(self, token: Token) -> Iterator[bytes]:
        if self._shown.has_logprobs:
            self._logprobs.append(chat_entry(self._front.tokenizer, token))
        self.num_reasoning += self._parser.is_reasoning
        return self._chunks(self._parser.feed(token.text))

    def end(self, finished: Finished) -> Iterator[bytes]:
        self.usage = finished.usage
        yield from self._chunks(self._parser.finish())
        reason = finish_reason(finished, has_calls=self._parser.num_calls > 0)
        rest = encode({"finish_reason": reason, "stop_reason": shown_stop(self._front, finished)})
        yield self._before + b'{},"logprobs":' + self._taken_logprobs() + b"," + rest[1:-1] + self._after

    def _chunks(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        for delta in deltas:
            if self._shown.hides(delta):
                continue
            if not self._logprobs:
                yield self._before + self._delta(delta) + self._unfinished
            else:
                logprobs = b',"logprobs":' + self._taken_logprobs() + b',"finish_reason":null'
                yield self._before + self._delta(delta) + logprobs + self._after

    def _delta(self, delta: Delta) -> bytes:
        if delta.kind == "text":
            return b'{"content":' + encode(delta.text) + b"}"
        if delta.kind == "reasoning":
            return self._reasoning + encode(delta.text) + b"}"
        call: dict[str, Any] = {"index": delta.call_idx}
        if delta.kind == "call":
            call["id"] = call_id(self._request.id, delta.call_idx)
            call["type"] = "function"
            call["function"] = {"name": delta.text, "arguments": ""}
        else:
            call["function"] = {"arguments": delta.text}
        return encode({"tool_calls": [call]})

    def _taken_logprobs(self) -> bytes:
        """Of the tokens since the last chunk: those of a chunk are those whose text it brings to an end."""
        if not self._logprobs:
            return b"null"
        taken, self._logprobs = self._logprobs, []
        return encode({"content": taken, "refusal": None})
