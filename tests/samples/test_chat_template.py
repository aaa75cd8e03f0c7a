"""The chat template renders a history byte for byte as it was generated, and training uses that same text."""

import json
from typing import Any, cast

import pytest
from transformers import PreTrainedTokenizerFast

from samples.train.chat.feed import encode
from samples.train.chat.mixture import conversation, training_world
from samples.train.chat.rendering import Conversation, Turn, pieces, prompt
from samples.train.chat.tokenizer import fast_tokenizer, load
from samples.train.scenes.vocabulary import THINGS, TINTS

TOOL = {"type": "function", "function": {"name": "f", "description": "Do it.", "parameters": {"type": "object"}}}
ARGUMENTS = '{"b":1,  "a": "é", "b2": 1.50}'  # no serialiser writes it like this


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return fast_tokenizer()


def rendered(tokenizer: PreTrainedTokenizerFast, messages: list[Any], tools: Any = None, **more: Any) -> str:
    text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **more)
    assert isinstance(text, str)
    return text


def test_the_python_renderer_equals_the_template_on_random_conversations(tokenizer: PreTrainedTokenizerFast) -> None:
    world = training_world(11)
    for _ in range(150):
        talk = conversation(world)
        text = "".join(piece for piece, _ in pieces(talk))
        assert rendered(tokenizer, talk.messages(), talk.tools or None) == text


def test_pieces_are_encoded_as_the_whole_text_would_be() -> None:
    world = training_world(12)
    plain = load()
    for _ in range(150):
        talk = pieces(conversation(world))
        ids, loss = encode(plain, [talk])[0]
        assert ids == plain.encode("".join(text for text, _ in talk), add_special_tokens=False).ids
        assert any(loss) and not loss[0]


CALL = {"type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}
ANSWERS = {
    "plain": ({"role": "assistant", "content": "Hello  there.\n\nYes "}, False),
    "thinking": ({"role": "assistant", "reasoning_content": "Hm,\n\nso.", "content": "Yes."}, True),
    "tool call": ({"role": "assistant", "content": "", "tool_calls": [CALL]}, False),
    "text and two tool calls": ({"role": "assistant", "content": "Wait.", "tool_calls": [CALL, CALL]}, False),
    "thinking and a tool call": (
        {"role": "assistant", "reasoning_content": "I call.", "content": None, "tool_calls": [CALL]},
        True,
    ),
}


def generated(answer: dict[str, Any]) -> str:
    """What the model wrote for this message, given the format it is trained in."""
    calls = [
        f'<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>' for _ in answer.get("tool_calls", [])
    ]
    text = "\n".join([answer["content"], *calls] if answer["content"] else calls)
    return (f"{answer['reasoning_content']}\n</think>\n\n" if "reasoning_content" in answer else "") + text


@pytest.mark.parametrize("kind", sorted(ANSWERS))
@pytest.mark.parametrize("follow_up", ["user", "tool"])
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_a_turns_prompt_begins_with_the_whole_turn_before(
    tokenizer: PreTrainedTokenizerFast, kind: str, follow_up: str, tools: Any
) -> None:
    answer, is_thinking = ANSWERS[kind]
    history: list[Any] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi 🐱"}]
    first = rendered(tokenizer, history, tools, add_generation_prompt=True, enable_thinking=is_thinking)
    before = first + generated(cast(dict[str, Any], answer)) + "<|im_end|>"
    history += [answer, {"role": follow_up, "content": "ok"}]
    if follow_up == "tool":
        history.append({"role": "tool", "content": "second result"})
    for thinks_next in (False, True):
        after = rendered(tokenizer, history, tools, add_generation_prompt=True, enable_thinking=thinks_next)
        assert after.startswith(before)
        ids_before, ids_after = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, after))
        assert ids_after[: len(ids_before)] == ids_before


def test_by_default_there_is_no_thought(tokenizer: PreTrainedTokenizerFast) -> None:
    text = rendered(tokenizer, [{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert text == prompt(Conversation([Turn("user", "Hi")]))


def test_text_parts_and_call_arguments_as_objects_render(tokenizer: PreTrainedTokenizerFast) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert "user\nab<|im_end|>" in rendered(tokenizer, parts)
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": "é"}}}]}
    assert json.dumps({"name": "f", "arguments": {"x": "é"}}, ensure_ascii=False) in rendered(
        tokenizer, [parts[0], call]
    )


def test_every_word_of_the_scenes_is_at_most_two_tokens() -> None:
    plain = load()
    for name in [*TINTS, *(thing.name for thing in THINGS), *(thing.plural for thing in THINGS)]:
        for word in name.split():
            assert len(plain.encode(" " + word).ids) <= 2, word
