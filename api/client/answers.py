"""One answer, as its chunks come: the events they make, and the Answer they add up to."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from hemiola.core.events import Event, Finished, FinishReason, Token, TopLogprob, Usage

from ..front.answers import parse_answer
from ..results import Answer, ToolCall
from .chunks import Call, Choice, Chunk, Costs, Delta, Entry, Logprobs, TopEntry
from .errors import ConnectionLost
from .markup import Markup

UNKNOWN_ID = -1  # servers tell texts of tokens, not ids


@dataclass(slots=True)
class _Called:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


class AnswerReader:
    """Of one request with one answer."""

    def __init__(self, request_id: str) -> None:
        self.model = ""
        self._id = request_id
        self._markup = Markup()
        self._texts: list[str] = []
        self._reasoning: list[str] | None = None
        self._calls: dict[int, _Called] = {}
        self._reason: str | None = None
        self._stop_reason: str | int | None = None
        self._costs = Costs()

    def read(self, chunk: Chunk) -> Iterator[Token]:
        """The tokens that a chunk brings; one without log-probabilities counts as one token."""
        self.model = chunk.model or self.model
        self._costs = chunk.usage or self._costs
        for choice in chunk.choices or ():
            yield from self._read(choice)

    def finished(self) -> Finished:
        """The good end.

        Raises:
            ConnectionLost: the stream has ended, but the answer has not.
        """
        if self._reason is None:
            raise ConnectionLost("The server's stream ended before the answer did.")
        return Finished(self._id, cast(FinishReason, self._reason), self._usage, self._stop_reason)

    def answer(self, events: Sequence[Event]) -> Answer:
        """Of all events of the request."""
        tokens, raw = _mine(self._id, events)
        reasoning_tokens = self._costs.completion_tokens_details
        return Answer(
            text="".join(self._texts),
            finish_reason=self._reason or "stop",
            token_ids=(),
            usage=self._usage,
            raw_text=raw,
            reasoning=None if self._reasoning is None else "".join(self._reasoning),
            tool_calls=tuple(ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls.values()),
            stop_reason=self._stop_reason,
            tokens=tokens,
            reasoning_tokens=(reasoning_tokens and reasoning_tokens.reasoning_tokens) or 0,
        )

    @property
    def _usage(self) -> Usage:
        details = self._costs.prompt_tokens_details
        cached_tokens = (details and details.cached_tokens) or 0
        return Usage(self._costs.prompt_tokens, cached_tokens, self._costs.completion_tokens)

    def _read(self, choice: Choice) -> Iterable[Token]:
        delta = choice.delta or choice.message
        raw = self._raw(delta) if delta is not None else self._plain(choice.text or "")
        if choice.finish_reason is not None:
            self._reason = "tool_calls" if choice.finish_reason == "function_call" else choice.finish_reason
            self._stop_reason = choice.stop_reason
            raw += self._markup.end(is_cut=self._reason == "length")
        return _tokens(self._id, raw, choice.logprobs)

    def _plain(self, text: str) -> str:
        self._texts.append(text)
        return text

    def _raw(self, delta: Delta) -> str:
        """Sorts the parts of a delta, and puts them together as the model wrote them."""
        raw = ""
        if reasoning := delta.reasoning_content or delta.reasoning:
            self._reasoning = self._reasoning or []
            self._reasoning.append(reasoning)
            raw += self._markup.reasoning(reasoning)
        if delta.content:
            self._texts.append(delta.content)
            raw += self._markup.text(delta.content)
        for position, call in enumerate(delta.tool_calls or ()):
            raw += self._call(position if call.index is None else call.index, call)
        return raw

    def _call(self, index: int, call: Call) -> str:
        name, arguments = (call.function.name, call.function.arguments) if call.function else (None, None)
        raw = ""
        if index not in self._calls:
            self._calls[index] = _Called(call.id or f"call_{self._id}_{index}", name or "")
            raw = self._markup.call(name or "")
        if arguments:
            self._calls[index].arguments.append(arguments)
        return raw + (arguments or "")


class CompletionReader(AnswerReader):
    """Of a plain completion: the text is what the model wrote, reasoning and all.

    Args:
        is_thinking: the prompt ends inside a think block.
    """

    def __init__(self, request_id: str, *, is_thinking: bool) -> None:
        super().__init__(request_id)
        self._is_thinking = is_thinking

    def answer(self, events: Sequence[Event]) -> Answer:
        tokens, raw = _mine(self._id, events)
        parsed = parse_answer(raw, is_thinking=self._is_thinking, has_tools=False)
        return Answer(
            text=parsed.text,
            finish_reason=self._reason or "stop",
            token_ids=(),
            usage=self._usage,
            raw_text=raw,
            reasoning=parsed.reasoning,
            stop_reason=self._stop_reason,
            tokens=tokens,
        )


def _mine(request_id: str, events: Sequence[Event]) -> tuple[tuple[Token, ...], str]:
    tokens = tuple(event for event in events if isinstance(event, Token) and event.request_id == request_id)
    return tokens, "".join(token.text for token in tokens)


def _tokens(request_id: str, text: str, logprobs: Logprobs | None) -> Iterator[Token]:
    """The text belongs to the last of several tokens: those before it only began its characters."""
    entries = () if logprobs is None else _entries(logprobs)
    if not entries:
        if text:
            yield Token(request_id, UNKNOWN_ID, text=text)
        return
    for number, entry in enumerate(entries, 1):
        tops = tuple(TopLogprob(UNKNOWN_ID, top.logprob) for top in entry.top_logprobs or ())
        yield Token(request_id, UNKNOWN_ID, entry.logprob, tops, text if number == len(entries) else "")


def _entries(logprobs: Logprobs) -> Sequence[Entry]:
    if logprobs.content is not None:
        return logprobs.content
    tops = logprobs.top_logprobs or ()
    return [
        Entry(logprob or 0.0, [TopEntry(value) for value in (tops[i] or {}).values()] if i < len(tops) else None)
        for i, logprob in enumerate(logprobs.token_logprobs or ())
    ]
