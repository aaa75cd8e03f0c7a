"""Chat through OpenAI's own client, against a real server: what it shows, and in which order."""

from typing import Any

import httpx
import openai
import pytest

from .text_rig import Answer, Reciter, RecitingCalls, frames_of, texts

HI: Any = [{"role": "user", "content": "Hi!"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Now.", "parameters": {"type": "object", "properties": {}}},
}
TWO_CALLS = (
    'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city":  "Köln", "days": [1, 2]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>'
)
ARGUMENTS = '{"city":  "Köln", "days": [1, 2]}'


def test_an_answer_has_all_fields(client: openai.OpenAI, reciter: Reciter) -> None:
    reciter.answers = [Answer("Hello, 漢字 😀!", cached_tokens=4)]
    answer = client.chat.completions.create(model="org/tiny", messages=HI)
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.created > 1e9
    assert answer.model == "org/tiny"
    (choice,) = answer.choices
    assert (choice.index, choice.message.role, choice.message.content) == (0, "assistant", "Hello, 漢字 😀!")
    assert choice.finish_reason == "stop" and choice.logprobs is None
    assert choice.message.tool_calls is None and "tool_calls" not in choice.message.model_dump(exclude_unset=True)
    (request,) = reciter.requests
    usage = answer.usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens == len(request.token_ids)
    assert usage.completion_tokens == len(reciter.tokenizer.encode("Hello, 漢字 😀!"))
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == 4


def test_a_stream_begins_with_the_role_and_ends_with_the_usage(client: openai.OpenAI, reciter: Reciter) -> None:
    reciter.answers = [Answer("Hello, 漢字 😀!")]
    stream = client.chat.completions.create(
        model="org/tiny", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert {(c.id, c.created, c.model, c.object) for c in chunks} == {
        (chunks[0].id, chunks[0].created, "org/tiny", "chat.completion.chunk")
    }
    first, *middle, last, usage = chunks
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert all(c.choices[0].delta.role is None and c.choices[0].finish_reason is None for c in middle)
    assert texts(middle) == "Hello, 漢字 😀!"
    assert last.choices[0].finish_reason == "stop" and last.choices[0].delta.content is None
    assert usage.choices == [] and usage.usage is not None
    assert usage.usage.completion_tokens == len(reciter.tokenizer.encode("Hello, 漢字 😀!"))
    assert all(c.usage is None for c in chunks[:-1])


def test_a_stream_without_usage_says_nothing_of_it(http: httpx.Client) -> None:
    body = http.post("/v1/chat/completions", json={"messages": HI, "stream": True}).text
    assert all("usage" not in frame and frame["choices"] for frame in frames_of(body))
    assert body.endswith("data: [DONE]\n\n") and body.count("[DONE]") == 1


def test_the_headers_of_a_stream_keep_it_from_being_gathered_up(http: httpx.Client) -> None:
    headers = http.post("/v1/chat/completions", json={"messages": HI, "stream": True}).headers
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no"


def test_several_answers_come_with_all_roles_first_and_one_usage(client: openai.OpenAI, reciter: Reciter) -> None:
    reciter.answers = [Answer("one"), Answer("two"), Answer("three")]
    with client.chat.completions.stream(
        model="org/tiny", messages=HI, n=3, seed=5, stream_options={"include_usage": True}
    ) as stream:
        roles = [event.chunk.choices[0].index for event in stream if event.type == "chunk" and _is_role(event.chunk)]
        final = stream.get_final_completion()
    assert roles == [0, 1, 2]
    said = {choice.message.content or "" for choice in final.choices}
    assert said == {"one", "two", "three"} and [choice.index for choice in final.choices] == [0, 1, 2]
    assert [request.sampling.seed for request in reciter.requests] == [5, 6, 7]
    assert final.usage is not None and final.usage.prompt_tokens == len(reciter.requests[0].token_ids)
    assert final.usage.completion_tokens == sum(len(reciter.tokenizer.encode(text)) for text in said)


def _is_role(chunk: Any) -> bool:
    return bool(chunk.choices) and chunk.choices[0].delta.role is not None


def test_what_is_asked_of_sampling_reaches_the_engine(client: openai.OpenAI, reciter: Reciter) -> None:
    client.chat.completions.create(
        model="org/tiny",
        messages=HI,
        temperature=0.5,
        top_p=0.25,
        seed=-3,
        max_tokens=9,
        max_completion_tokens=3,
        stop=["END", "x"],
        extra_body={"top_k": 7, "stop_token_ids": [65], "priority": -2, "cache_salt": "salt", "ignore_eos": True},
    )
    (request,) = reciter.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.25, 7, -3)
    assert (sampling.max_tokens, sampling.stop, sampling.stop_token_ids) == (3, ("END", "x"), (65,))
    assert (request.priority, request.cache_salt) == (-2, "salt")


def test_without_a_limit_the_context_is_used_up(client: openai.OpenAI, reciter: Reciter, calls: RecitingCalls) -> None:
    client.chat.completions.create(model="org/tiny", messages=HI)
    (request,) = reciter.requests
    assert request.sampling.max_tokens == calls.front.context_len - len(request.token_ids)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_stop_string_ends_the_answer_unseen(client: openai.OpenAI, reciter: Reciter, is_streamed: bool) -> None:
    reciter.answers = [Answer("one two END three")]
    reciter.pause_after = 13  # tokens: so that the end is found before the answer is over
    got: Any = client.chat.completions.create(model="org/tiny", messages=HI, stop="END", stream=is_streamed)
    chunks = list(got) if is_streamed else []
    said = texts(chunks) if is_streamed else got.choices[0].message.content
    last = chunks[-1].choices[0] if is_streamed else got.choices[0]
    assert (said, last.finish_reason, last.model_extra["stop_reason"]) == ("one two ", "stop", "END")


def test_an_answer_that_is_cut_off_says_so(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="org/tiny", messages=HI, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_logprobs_are_of_every_token_and_their_bytes_are_the_text(
    client: openai.OpenAI, reciter: Reciter, is_streamed: bool
) -> None:
    text = "Köln 漢字 😀!"
    reciter.answers = [Answer(text)]
    options: Any = {"model": "org/tiny", "messages": HI, "logprobs": True, "top_logprobs": 3}
    if is_streamed:
        with client.chat.completions.stream(**options) as stream:
            logprobs = stream.get_final_completion().choices[0].logprobs
    else:
        logprobs = client.chat.completions.create(**options).choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [entry.token for entry in logprobs.content if "\\x" in entry.token] != []  # parts of characters
    assert b"".join(bytes(entry.bytes or ()) for entry in logprobs.content).decode() == text
    assert len(logprobs.content) == len(reciter.tokenizer.encode(text))
    for entry in logprobs.content:
        assert [top.logprob for top in entry.top_logprobs] == sorted(t.logprob for t in entry.top_logprobs)[::-1]
        assert len(entry.top_logprobs) == 3 and entry.logprob == -0.25


def test_the_logprobs_of_a_chunk_are_those_of_its_text(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("a漢b")]
    body = {"messages": HI, "stream": True, "logprobs": True}
    told = []
    for frame in frames_of(http.post("/v1/chat/completions", json=body).text):
        choice = frame["choices"][0]
        entries = (choice["logprobs"] or {}).get("content", [])
        told.append((choice["delta"].get("content", ""), bytes(b for e in entries for b in e["bytes"]).decode()))
    assert told == [("", ""), ("a", "a"), ("漢", "漢"), ("b", "b"), ("", "")]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tool_calls_keep_their_arguments_to_the_letter(
    client: openai.OpenAI, reciter: Reciter, is_streamed: bool
) -> None:
    reciter.answers = [Answer(TWO_CALLS)]
    options: Any = {"model": "org/tiny", "messages": HI, "tools": [WEATHER]}
    if is_streamed:
        with client.chat.completions.stream(**options) as stream:
            choice: Any = stream.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**options).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me see."
    first, second = choice.message.tool_calls
    assert (first.type, first.function.name, first.function.arguments) == ("function", "get_weather", ARGUMENTS)
    assert second.function.arguments == "{}" and first.id != second.id
    assert "get_weather" in reciter.tokenizer.decode(reciter.requests[0].token_ids)


def test_a_tool_call_is_streamed_as_it_is_written(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer(TWO_CALLS)]
    body = {"messages": HI, "stream": True, "tools": [WEATHER]}
    frames = frames_of(http.post("/v1/chat/completions", json=body).text)
    calls = [call for f in frames for call in f["choices"][0]["delta"].get("tool_calls", [])]
    heads = [call for call in calls if "id" in call]
    assert [call["index"] for call in calls] == sorted(call["index"] for call in calls)
    assert [(head["index"], head["function"]) for head in heads] == [
        (0, {"name": "get_weather", "arguments": ""}),
        (1, {"name": "get_weather", "arguments": ""}),
    ]
    rest = [call for call in calls if "id" not in call]
    assert all(call.keys() == {"index", "function"} and call["function"].keys() == {"arguments"} for call in rest)
    assert "".join(call["function"]["arguments"] for call in rest if call["index"] == 0) == ARGUMENTS
    assert len([call for call in rest if call["index"] == 0]) > 10


@pytest.mark.parametrize("is_streamed", [False, True])
def test_parallel_calls_can_be_turned_off(client: openai.OpenAI, reciter: Reciter, is_streamed: bool) -> None:
    reciter.answers = [Answer(TWO_CALLS)]
    options: Any = {"model": "org/tiny", "messages": HI, "tools": [WEATHER], "parallel_tool_calls": False}
    if is_streamed:
        with client.chat.completions.stream(**options) as stream:
            choice: Any = stream.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**options).choices[0]
    assert [call.function.arguments for call in choice.message.tool_calls] == [ARGUMENTS]


@pytest.mark.parametrize("options", [{}, {"tools": []}, {"tools": [WEATHER], "tool_choice": "none"}])
def test_without_tools_the_markup_of_calls_is_text(
    client: openai.OpenAI, reciter: Reciter, options: dict[str, Any]
) -> None:
    reciter.answers = [Answer(TWO_CALLS)]
    answer = client.chat.completions.create(model="org/tiny", messages=HI, **options)
    assert answer.choices[0].message.content == TWO_CALLS and answer.choices[0].finish_reason == "stop"
    assert "get_weather" not in reciter.tokenizer.decode(reciter.requests[0].token_ids)


def test_a_conversation_with_tools_goes_to_the_model_as_it_was(client: openai.OpenAI, reciter: Reciter) -> None:
    call: Any = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
    history: Any = [
        *HI,
        {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    client.chat.completions.create(model="org/tiny", messages=history, tools=[WEATHER])
    prompt = reciter.tokenizer.decode(reciter.requests[0].token_ids, skip_special_tokens=False)
    assert "<think>\nHm.\n</think>" in prompt
    assert f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>' in prompt
    assert "<|im_start|>tool\nrain<|im_end|>" in prompt


@pytest.mark.parametrize("is_streamed", [False, True])
def test_reasoning_comes_apart_from_the_answer(client: openai.OpenAI, reciter: Reciter, is_streamed: bool) -> None:
    reciter.answers = [Answer("<think>\nLet me\nthink.\n</think>\n\nYes.")]
    options: Any = {"model": "org/tiny", "messages": HI, "reasoning_effort": "low", "stream": is_streamed}
    if is_streamed:
        options["stream_options"] = {"include_usage": True}
    got: Any = client.chat.completions.create(**options)
    if is_streamed:
        chunks = list(got)
        deltas = [c.choices[0].delta for c in chunks if c.choices]
        kinds = ["r" if (d.model_extra or {}).get("reasoning_content") else "c" for d in deltas[1:-1]]
        assert kinds == sorted(kinds, reverse=True)
        reasoning = "".join((d.model_extra or {}).get("reasoning_content", "") for d in deltas)
        content, usage = texts(chunks), chunks[-1].usage
    else:
        message, usage = got.choices[0].message, got.usage
        reasoning, content = message.model_extra["reasoning_content"], message.content
    assert (reasoning, content) == ("Let me\nthink.", "Yes.")
    tokens = usage.completion_tokens_details.reasoning_tokens
    assert 0 < tokens < usage.completion_tokens


@pytest.mark.parametrize(
    ("options", "is_on"),
    [
        ({}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_thinking_is_turned_on_and_off(
    http: httpx.Client, reciter: Reciter, options: dict[str, Any], is_on: bool
) -> None:
    assert http.post("/v1/chat/completions", json={"messages": HI, **options}).status_code == 200
    prompt = reciter.tokenizer.decode(reciter.requests[0].token_ids, skip_special_tokens=False)
    assert prompt.endswith("<think>\n\n</think>\n\n") is not is_on


def test_reasoning_can_be_left_out(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("<think>\nHm.\n</think>\n\nYes.")]
    body = {"messages": HI, "include_reasoning": False}
    message = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Yes.", "refusal": None}
    streamed = http.post("/v1/chat/completions", json=body | {"stream": True}).text
    assert "Hm" not in streamed and "Yes" in "".join(
        f["choices"][0]["delta"].get("content", "") for f in frames_of(streamed)
    )


def test_developers_speak_as_the_system_and_parts_of_text_become_lines(http: httpx.Client, reciter: Reciter) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]
    assert http.post("/v1/chat/completions", json={"messages": messages}).status_code == 200
    prompt = reciter.tokenizer.decode(reciter.requests[0].token_ids, skip_special_tokens=False)
    assert "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>" in prompt


def test_a_message_that_has_begun_is_gone_on_with(http: httpx.Client, reciter: Reciter) -> None:
    begun = [*HI, {"role": "assistant", "content": "Once upon"}]
    body = {"messages": begun, "continue_final_message": True, "add_generation_prompt": False}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    prompt = reciter.tokenizer.decode(reciter.requests[0].token_ids, skip_special_tokens=False)
    assert prompt.endswith("<think>\n\n</think>\n\nOnce upon") and prompt.count("Once upon") == 1
    for wrong in ({"add_generation_prompt": True}, {"messages": HI}):
        assert http.post("/v1/chat/completions", json=body | wrong).status_code == 400
    only = {"messages": HI, "add_generation_prompt": False}
    assert http.post("/v1/chat/completions", json=only).json()["error"]["param"] == "add_generation_prompt"


def test_the_prompt_of_several_answers_counts_once(client: openai.OpenAI, reciter: Reciter) -> None:
    answer = client.chat.completions.create(model="org/tiny", messages=HI, n=3)
    assert answer.usage is not None and answer.usage.prompt_tokens == len(reciter.requests[0].token_ids)
    assert answer.usage.completion_tokens == 3 * len(reciter.tokenizer.encode("Hello there."))


async def test_the_asynchronous_client_works_as_well(address: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        stream = await client.chat.completions.create(model="org/tiny", messages=HI, stream=True)
        assert texts([chunk async for chunk in stream]) == "Hello there."
