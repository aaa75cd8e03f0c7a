"""Completions through OpenAI's own client: prompts of every form, choices in order, echoes and log-probabilities."""

from typing import Any

import httpx
import openai
import pytest

from .text_rig import Answer, Reciter, frames_of


def test_a_completion_has_all_fields(client: openai.OpenAI, reciter: Reciter) -> None:
    reciter.answers = [Answer("<think> and so on", cached_tokens=2)]
    answer = client.completions.create(model="org/tiny", prompt="Once")
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion" and answer.model == "org/tiny"
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason, choice.logprobs) == (0, "<think> and so on", "stop", None)
    (request,) = reciter.requests
    assert list(request.token_ids) == reciter.tokenizer.encode("Once") and request.sampling.max_tokens == 16
    assert answer.usage is not None and answer.usage.prompt_tokens == len(request.token_ids)
    assert answer.usage.prompt_tokens_details is not None and answer.usage.prompt_tokens_details.cached_tokens == 2


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", ["ab"]),
        (["ab", "c"], ["ab", "c"]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
def test_prompts_are_texts_or_token_ids_one_or_several(
    client: openai.OpenAI, reciter: Reciter, prompt: Any, expected: list[Any]
) -> None:
    answer = client.completions.create(model="org/tiny", prompt=prompt)
    given = [reciter.tokenizer.encode(each) if isinstance(each, str) else each for each in expected]
    assert [list(request.token_ids) for request in reciter.requests] == given
    assert [choice.index for choice in answer.choices] == list(range(len(expected)))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_choices_go_by_prompt_and_then_by_answer(client: openai.OpenAI, reciter: Reciter, is_streamed: bool) -> None:
    reciter.answers = [Answer(text) for text in ("a0", "a1", "bb0", "bb1")]
    options: Any = {"model": "org/tiny", "prompt": ["aaa", "bbbbb"], "n": 2}
    if is_streamed:
        chunks = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))
        said = ["", "", "", ""]
        for chunk in chunks[:-1]:
            said[chunk.choices[0].index] += chunk.choices[0].text
        usage = chunks[-1].usage
    else:
        answer = client.completions.create(**options)
        said, usage = [choice.text for choice in answer.choices], answer.usage
    assert said == ["a0", "a1", "bb0", "bb1"]
    # Each prompt counts once, every answer counts.
    assert usage is not None and usage.prompt_tokens == 3 + 5 and usage.completion_tokens == 2 + 2 + 3 + 3


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_echo_comes_before_each_answer(client: openai.OpenAI, reciter: Reciter, is_streamed: bool) -> None:
    reciter.answers = [Answer("X")]
    got: Any = client.completions.create(model="org/tiny", prompt=["a ", "b "], echo=True, stream=is_streamed)
    if is_streamed:
        said = {0: "", 1: ""}
        for chunk in got:
            said[chunk.choices[0].index] += chunk.choices[0].text
        assert said == {0: "a X", 1: "b X"}
    else:
        assert [choice.text for choice in got.choices] == ["a X", "b X"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_logprobs_are_four_lists(client: openai.OpenAI, reciter: Reciter, is_streamed: bool) -> None:
    reciter.answers = [Answer("a漢b")]
    got: Any = client.completions.create(model="org/tiny", prompt="p", logprobs=2, stream=is_streamed)
    each = [c.choices[0].logprobs for c in got if c.choices[0].logprobs] if is_streamed else [got.choices[0].logprobs]
    tokens = [token for logprobs in each for token in logprobs.tokens]
    assert tokens[0] == "a" and tokens[-1] == "b" and all(t.startswith("bytes:\\x") for t in tokens[1:-1])
    assert [lp for logprobs in each for lp in logprobs.token_logprobs] == [-0.25] * len(tokens)
    tops = [top for logprobs in each for top in logprobs.top_logprobs]
    assert all(len(top) == 2 and top[token] == -0.25 for top, token in zip(tops, tokens, strict=True))
    offsets = [offset for logprobs in each for offset in logprobs.text_offset]
    assert offsets == [0, 1, *([1] * (len(tokens) - 3)), 2]


def test_the_chosen_token_is_told_even_if_no_likeliest_are_wanted(client: openai.OpenAI, reciter: Reciter) -> None:
    reciter.answers = [Answer("ab")]
    logprobs = client.completions.create(model="org/tiny", prompt="p", logprobs=0).choices[0].logprobs
    assert logprobs is not None and logprobs.top_logprobs == [{"a": -0.25}, {"b": -0.25}]


def test_a_stream_ends_each_choice_and_then_itself(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("ab")]
    text = http.post("/v1/completions", json={"prompt": "p", "stream": True, "max_tokens": 1}).text
    frames = frames_of(text)
    assert [(f["choices"][0]["text"], f["choices"][0]["finish_reason"]) for f in frames] == [
        ("a", None),
        ("", "length"),
    ]
    assert text.endswith("data: [DONE]\n\n")
