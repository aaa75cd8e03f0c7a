"""Answers are taken apart in the same way however they are cut into pieces, and nothing of them is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hemiola.api.front.answers import AnswerParser, ParsedAnswer, collect, parse_answer
from hemiola.api.front.tool_calls import ParsedCall

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "\n", "\n\n", " ", "<", "a", "hello", "{", "}", '"', "\\",
    '\\"', '{"name": "f", "arguments": ', '{"name":"g","arguments":{}}', '{"a": "b"}', "[1,2]", "</tool", "_call>",
    "<tool_", "call>", '{"arguments": {"x": 1}, "name": "h"}', '"x\n</tool_call>', '{"name": "\\u12"',
]  # fmt: skip


def call(name: str, arguments: str) -> ParsedCall:
    return ParsedCall(name, arguments)


@pytest.mark.parametrize(
    ("raw", "text", "calls"),
    [
        ("plain text", "plain text", []),
        ("ends in space \n", "ends in space \n", []),
        ("a < b and <tool is no mark", "a < b and <tool is no mark", []),
        (CALL, "", [call("f", '{"a": 1}')]),
        (f"Let me see.\n\n{CALL}\n{CALL}\n", "Let me see.", [call("f", '{"a": 1}')] * 2),
        (f"{CALL} and more", " and more", [call("f", '{"a": 1}')]),
        (
            '<tool_call>{"name":"f","arguments":{"s": "}\\"]", "n": [{}]}}</tool_call>',
            "",
            [call("f", '{"s": "}\\"]", "n": [{}]}')],
        ),
        ('<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', "", [call("f", '{"x": 1}')]),
        ('<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>', "", [call("f", '{"x": 1}')]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [call("f", "{}")]),
        # Line breaks inside of strings are no JSON, but written all the same.
        ('<tool_call>{"name": "f", "arguments": {"code": "a\nb"}}</tool_call>', "", [call("f", '{"code": "a\nb"}')]),
        # A mark inside of a string is a part of the string.
        (
            '<tool_call>{"name": "f", "arguments": {"s": "</tool_call>"}}</tool_call>',
            "",
            [call("f", '{"s": "</tool_call>"}')],
        ),
        # What only looks like a call is text.
        (" <tool_call>nothing</tool_call> ", " <tool_call>nothing</tool_call> ", []),
        ('<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
        ("a <tool_call>{", "a <tool_call>{", []),
        # Cut off, or never closed.
        ('<tool_call>{"name": "f", "arguments": {"a": [1, ', "", [call("f", '{"a": [1, ')]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', "", [call("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f", "arguments": {"a": "b}}\n</tool_call>c', "c", [call("f", '{"a": "b}}\n')]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>c', "c", [call("f", '{"a": 1')]),
    ],
)  # fmt: skip
def test_calls_are_told_from_text(raw: str, text: str, calls: list[ParsedCall]) -> None:
    assert parse_answer(raw, is_thinking=False, has_tools=True) == ParsedAnswer(text, None, calls)


@pytest.mark.parametrize(
    ("raw", "is_thinking", "reasoning", "text"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", False, "Hm.", "Yes."),
        ("Hm.\n</think>\n\nYes.", True, "Hm.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", False, "", "Yes."),
        ("<think>Hm.</think>Yes.", False, "Hm.", "Yes."),
        ("<think>\nHm", False, "Hm", ""),
        ("Hm </thi", True, "Hm </thi", ""),
        ("<thinking>", False, None, "<thinking>"),
        ("Yes. <think>", False, None, "Yes. <think>"),
        ("", True, "", ""),
        ("<thi", False, None, "<thi"),
    ],
)
def test_reasoning_is_told_from_text(raw: str, is_thinking: bool, reasoning: str | None, text: str) -> None:
    assert parse_answer(raw, is_thinking=is_thinking, has_tools=True) == ParsedAnswer(text, reasoning, [])


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14), st.data(), st.booleans(), st.booleans())
def test_how_an_answer_is_cut_does_not_matter(
    fragments: list[str], data: st.DataObject, is_thinking: bool, has_tools: bool
) -> None:
    raw = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=30)))
    parser = AnswerParser(is_thinking=is_thinking, has_tools=has_tools)
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.finish()
    cut = collect(deltas, has_reasoning=parser.has_reasoning)
    assert cut == parse_answer(raw, is_thinking=is_thinking, has_tools=has_tools)
    assert all(delta.text or delta.kind == "call" for delta in deltas)


@given(st.text(alphabet="ab <>/thinkcal_\n", max_size=60))
def test_without_marks_nothing_is_lost(raw: str) -> None:
    parsed = parse_answer(raw, is_thinking=False, has_tools=True)
    if parsed.reasoning is None and not parsed.calls:
        assert parsed.text == raw


def test_arguments_are_told_before_they_are_complete() -> None:
    parser = AnswerParser(is_thinking=False, has_tools=True)
    head = parser.feed('<tool_call>\n{"name": "f", "arguments": {"a": "lo')
    assert [delta.kind for delta in head] == ["call", "arguments"] and head[1].text == '{"a": "lo'
    assert [delta.text for delta in parser.feed("ng")] == ["ng"]
