"""A completion stream's chunks: what each choice adds, its end, the usage."""

from collections.abc import Iterator, Sequence

from hemiola.core.events import Event, Failed, Finished, Token, Usage
from hemiola.core.request import TextRequest

from ..front.text import TextFront
from ..results import total_usage
from ..stream import error_of
from .chunks import ChunkParts, encode, shown_stop
from .logprobs import CompletionLogprobs
from .usage import usage_json


class CompletionChunks:
    """Of one call; see `chunks.Chunks`.

    Args:
        requests: in the order of the choices.
        echoes: what is shown before each answer, "" for nothing.
        answers_per_prompt: choices that share a prompt.
    """

    def __init__(
        self,
        parts: ChunkParts,
        front: TextFront,
        requests: Sequence[TextRequest],
        echoes: Sequence[str],
        *,
        answers_per_prompt: int,
        has_usage: bool,
    ) -> None:
        self._parts = parts
        self._answers_per_prompt = answers_per_prompt
        self._has_usage = has_usage
        self._choices = {
            request.id: _Choice(i, parts, front, request, echo)
            for i, (request, echo) in enumerate(zip(requests, echoes, strict=True))
        }

    def opening(self) -> bytes:
        return b"".join(choice.opening() for choice in self._choices.values())

    def of(self, events: Sequence[Event]) -> bytes:
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Token):
                frames += self._choices[event.request_id].token(event)
            elif isinstance(event, Finished):
                frames.append(self._choices[event.request_id].end(event))
            elif isinstance(event, Failed):
                raise error_of(event)
        return b"".join(frames)

    def closing(self) -> bytes:
        if not self._has_usage:
            return b""
        usages = [choice.usage for choice in self._choices.values()]
        return self._parts.usage(usage_json(total_usage(usages, self._answers_per_prompt)))


class _Choice:
    """One answer; `usage` is known at the end."""

    def __init__(self, index: int, parts: ChunkParts, front: TextFront, request: TextRequest, echo: str) -> None:
        self.usage = Usage()
        self._front = front
        self._echo = echo
        self._before = parts.before(index) + b'"text":'
        self._after = parts.after
        self._unfinished = b',"logprobs":null,"finish_reason":null' + parts.after
        has_logprobs = request.sampling.logprobs is not None
        self._logprobs = CompletionLogprobs(front.tokenizer, len(echo)) if has_logprobs else None
        self._untold: list[Token] = []

    def opening(self) -> bytes:
        return self._before + encode(self._echo) + self._unfinished if self._echo else b""

    def token(self, token: Token) -> Iterator[bytes]:
        if self._logprobs is not None:
            self._untold.append(token)
        if not token.text:
            return
        if self._logprobs is None:
            yield self._before + encode(token.text) + self._unfinished
        else:
            yield self._before + encode(token.text) + self._told() + b',"finish_reason":null' + self._after

    def end(self, finished: Finished) -> bytes:
        self.usage = finished.usage
        rest = encode({"finish_reason": finished.reason, "stop_reason": shown_stop(self._front, finished)})
        return self._before + b'""' + self._told() + b"," + rest[1:-1] + self._after

    def _told(self) -> bytes:
        """Of the tokens since the last chunk."""
        if self._logprobs is None or not self._untold:
            return b',"logprobs":null'
        untold, self._untold = self._untold, []
        return b',"logprobs":' + encode(self._logprobs.of(untold))
