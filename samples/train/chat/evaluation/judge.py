"""What counts as a right answer, and the shape of an evaluation case. Strict: a thought without end, a marker that does
not belong, or text around the right answer is wrong."""

import json
import re
from dataclasses import dataclass

from samples.train.scenes.vocabulary import THINGS

LEAK = re.compile(r"<\|?/?(think|tool|im_|endof|assistant|user)")


@dataclass(frozen=True)
class Case:
    """One question: split is seen (trained wordings, unseen words), unseen (unseen wordings) or new_tools."""

    ability: str
    split: str
    messages: list[dict[str, object]]
    tools: list[dict[str, object]]
    is_thinking: bool
    answer: str
    check: list[str]


def final_answer(text: str, is_thinking: bool) -> str | None:
    """The answer after the thought; None when the thought has no end."""
    if not is_thinking:
        return text
    _, found, answer = text.partition("</think>\n\n")
    return answer if found else None


def calls_of(text: str) -> list[tuple[str, object]] | None:
    """Tool calls of an answer that consists of tool calls only."""
    blocks = re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)
    if "\n".join(f"<tool_call>\n{block}\n</tool_call>" for block in blocks) != text:
        return None
    try:
        parsed = [json.loads(block) for block in blocks]
    except json.JSONDecodeError:
        return None
    return [(str(call.get("name")), call.get("arguments")) for call in parsed if isinstance(call, dict)]


def has_leak(case: Case, answer: str) -> bool:
    """Control text where none belongs."""
    return case.check[0] != "tool" and LEAK.search(answer) is not None


def is_right(case: Case, text: str) -> bool:
    """Judge the model's whole continuation of a case."""
    answer = final_answer(text, case.is_thinking)
    if answer is None or has_leak(case, answer):
        return False
    answer = answer.strip()
    kind, *values = case.check
    if kind == "exact":
        return answer == case.answer
    if kind == "any":
        return answer in values
    if kind == "contains":
        return all(value.casefold() in answer.casefold() for value in values)
    if kind == "last_number":
        numbers = re.findall(r"-?\d+", answer)
        return bool(numbers) and numbers[-1] == values[0]
    if kind == "json":
        return _json_equal(answer, case.answer)
    if kind == "members":
        return _is_list_of(answer, int(values[0]), values[1:])
    if kind == "tool":
        calls = calls_of(answer)
        return calls is not None and calls == calls_of(case.answer)
    if kind == "caption":
        return answer.startswith(("a ", "an ")) and any(thing.name in answer for thing in THINGS) and len(answer) < 120
    raise ValueError(f"unknown check {kind}")


def _json_equal(answer: str, expected: str) -> bool:
    try:
        return bool(json.loads(answer) == json.loads(expected))
    except json.JSONDecodeError:
        return False


def _is_list_of(answer: str, count: int, allowed: list[str]) -> bool:
    """A JSON array or numbered lines with `count` different allowed items."""
    if answer.startswith("["):
        try:
            items = json.loads(answer)
        except json.JSONDecodeError:
            return False
    else:
        items = [re.sub(r"^(\d+\.|-)\s*", "", line) for line in answer.splitlines()]
    return len(items) == count == len(set(items)) and all(item in allowed for item in items)
