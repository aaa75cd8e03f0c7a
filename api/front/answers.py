"""Takes a generated text apart as it comes: reasoning, what the user reads, tool calls. Knows the Qwen/Hermes markup.

    <think>\\n reasoning \\n</think>\\n\\n text <tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>

What comes out does not depend on how the text was cut into pieces. What may still turn out to be markup is held back.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hemiola.llm.detokenize import overlap

from .tool_calls import CALL_END, CallReader, ParsedCall

_THINK, _THINK_END, _CALL = "<think>", "</think>", "<tool_call>"

DeltaKind = Literal["reasoning", "text", "call", "arguments"]


class Delta(NamedTuple):
    """What a piece adds. `call` begins tool call number `call_idx`: `text` is its name; `arguments` belong to it."""

    kind: DeltaKind
    text: str
    call_idx: int = 0


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """`reasoning` is None where there was none; `calls` are in order."""

    text: str
    reasoning: str | None
    calls: Sequence[ParsedCall]


class AnswerParser:
    """Of one answer: `feed` it the pieces, then `finish`.

    Args:
        is_thinking: the prompt ended inside `<think>`, so the answer begins with reasoning.
        has_tools: tools were offered; without, markup of calls is ordinary text.

    Fields:
        num_calls: tool calls that have begun.
        has_reasoning: reasoning has begun, though it may be empty.
    """

    def __init__(self, *, is_thinking: bool, has_tools: bool) -> None:
        self._has_tools = has_tools
        self._held = ""
        self._gap = ""  # white space before a call: nothing if it is one, text if it is not
        self._call: CallReader | None = None
        self.num_calls = 0
        self.has_reasoning = is_thinking
        self._read: Callable[[str, bool], Iterable[Delta]] = self._reasoning if is_thinking else self._start

    @property
    def is_reasoning(self) -> bool:
        """Whether what comes next is reasoning."""
        return self._read == self._reasoning

    def feed(self, piece: str) -> list[Delta]:
        """What the next piece of text adds."""
        held, self._held = self._held, ""
        return list(self._read(held + piece, False))

    def finish(self) -> list[Delta]:
        """What was held back. The answer is over."""
        held, self._held = self._held, ""
        return list(self._read(held, True))

    # One method a part of the answer: takes all that is unread, keeps in `_held` what it cannot decide on yet.

    def _start(self, text: str, is_end: bool) -> Iterable[Delta]:
        if text.startswith(_THINK) and (len(text) > len(_THINK) or is_end):
            self.has_reasoning = True
            yield from self._go(self._reasoning, text.removeprefix(_THINK).removeprefix("\n"), is_end)
        elif _THINK.startswith(text) and not is_end:
            self._held = text
        else:
            yield from self._go(self._text, text, is_end)

    def _reasoning(self, text: str, is_end: bool) -> Iterable[Delta]:
        reasoning, mark, rest = text.partition(_THINK_END)
        if mark or is_end:
            yield from _some("reasoning", reasoning.removesuffix("\n"))
            if mark:
                yield from self._go(self._after_reasoning, rest, is_end)
            return
        shown = _before(text, _THINK_END).removesuffix("\n")
        self._held = text[len(shown) :]
        yield from _some("reasoning", shown)

    def _after_reasoning(self, text: str, is_end: bool) -> Iterable[Delta]:
        if text in ("", "\n") and not is_end:
            self._held = text
        else:
            yield from self._go(self._text, text.removeprefix("\n\n"), is_end)

    def _text(self, text: str, is_end: bool) -> Iterable[Delta]:
        if not self._has_tools:
            yield from _some("text", text)
            return
        before, mark, rest = text.partition(_CALL)
        if mark:
            shown = before.rstrip()
            self._gap = before[len(shown) :]
            yield from _some("text", shown)
            self._call = CallReader()
            yield from self._go(self._in_call, rest, is_end)
        elif is_end:
            # White space behind a call only parts it from what might have followed.
            yield from _some("text", text.rstrip() if self.num_calls else text)
        else:
            shown = _before(text, _CALL).rstrip()
            self._held = text[len(shown) :]
            yield from _some("text", shown)

    def _in_call(self, text: str, is_end: bool) -> Iterable[Delta]:
        call = self._call
        assert call is not None, "inside a call without a reader"
        had_name = call.name is not None
        arguments, rest = call.feed(text, is_end)
        if call.name is None and rest is None:
            if is_end:
                yield from _some("text", self._gap + _CALL + call.unread)
        elif call.is_malformed:
            yield Delta("text", self._gap + _CALL + call.unread + CALL_END)
        else:
            if not had_name:
                yield Delta("call", call.name or "", self.num_calls)
                self.num_calls += 1
            yield from _some("arguments", arguments, self.num_calls - 1)
        if rest is not None:
            yield from self._go(self._text, rest, is_end)

    def _go(self, part: Callable[[str, bool], Iterable[Delta]], text: str, is_end: bool) -> Iterable[Delta]:
        self._read = part
        return part(text, is_end)


def parse_answer(raw: str, *, is_thinking: bool, has_tools: bool) -> ParsedAnswer:
    """Takes a whole answer apart; see `AnswerParser`."""
    parser = AnswerParser(is_thinking=is_thinking, has_tools=has_tools)
    return collect([*parser.feed(raw), *parser.finish()], has_reasoning=parser.has_reasoning)


def collect(deltas: Iterable[Delta], *, has_reasoning: bool) -> ParsedAnswer:
    """The answer that all deltas add up to."""
    parts: dict[DeltaKind, list[str]] = {"reasoning": [], "text": []}
    calls: list[tuple[str, list[str]]] = []
    for kind, text, index in deltas:
        if kind == "call":
            calls.append((text, []))
        elif kind == "arguments":
            calls[index][1].append(text)
        else:
            parts[kind].append(text)
    reasoning = "".join(parts["reasoning"]) if has_reasoning else None
    return ParsedAnswer("".join(parts["text"]), reasoning, [ParsedCall(name, "".join(text)) for name, text in calls])


def _some(kind: DeltaKind, text: str, index: int = 0) -> Iterable[Delta]:
    return (Delta(kind, text, index),) if text else ()


def _before(text: str, mark: str) -> str:
    """The text without an end that may be the beginning of the mark."""
    return text[: len(text) - overlap(text, mark)]
