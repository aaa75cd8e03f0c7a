"""Takes a generated text apart: reasoning, what the user reads, tool calls. Knows the Qwen/Hermes markup only.

    <think>\\n reasoning \\n</think>\\n\\n text <tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>

A tool call's arguments are kept as the very characters that were generated, so that a conversation rendered again gives
the same tokens.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_CALL = re.compile(r"\s*<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_HEAD = re.compile(r'\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
_THINK_END = "</think>"


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A well-formed call: its name, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """`reasoning` is None where there was none; `calls` are in order."""

    text: str
    reasoning: str | None
    calls: Sequence[ParsedCall]


def parse_answer(raw: str, *, is_thinking: bool, has_tools: bool) -> ParsedAnswer:
    """Takes a whole answer apart.

    Args:
        raw: what was generated.
        is_thinking: the prompt ended inside `<think>`, so the answer begins with reasoning.
        has_tools: tools were offered; without, markup of calls is ordinary text.
    """
    reasoning, text = _split_reasoning(raw, is_thinking)
    calls: list[ParsedCall] = []
    if has_tools:
        text, calls = _split_calls(text)
    return ParsedAnswer(text, reasoning, calls)


def _split_reasoning(raw: str, is_thinking: bool) -> tuple[str | None, str]:
    if raw.startswith("<think>"):
        raw, is_thinking = raw.removeprefix("<think>").removeprefix("\n"), True
    if not is_thinking:
        return None, raw
    reasoning, end, text = raw.partition(_THINK_END)
    return reasoning.removesuffix("\n"), text.removeprefix("\n\n") if end else ""


def _split_calls(text: str) -> tuple[str, list[ParsedCall]]:
    """The text without its well-formed calls; what only looks like a call stays in the text."""
    calls: list[ParsedCall] = []

    def take(match: re.Match[str]) -> str:
        call = parse_call(match[1])
        if call is None:
            return match[0]
        calls.append(call)
        return ""

    return _CALL.sub(take, text), calls


def parse_call(body: str) -> ParsedCall | None:
    """A call from the JSON between the marks; None unless it is an object of a name and arguments."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    head = _HEAD.match(body)
    if head is not None and set(value) == {"name", "arguments"}:
        return ParsedCall(value["name"], body[head.end() :].rstrip().removesuffix("}").rstrip())
    return ParsedCall(value["name"], json.dumps(value.get("arguments", {}), ensure_ascii=False))
