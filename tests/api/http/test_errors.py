"""What goes wrong is said in the words of the OpenAI API: status, type, code, field, and a message of bounded size."""

import json
from typing import Any

import httpx
import openai
import pytest

from hemiola.api.http.settings import Settings
from hemiola.core.errors import EngineDied, Overloaded

from .text_rig import CONTEXT_LEN, Answer, Reciter, RecitingCalls, frames_of, served

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI: Any = [{"role": "user", "content": "Hi!"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error, after a look at its form."""
    body = response.json()
    assert body.keys() == {"error"} and body["error"].keys() == {"message", "type", "param", "code"}
    assert len(body["error"]["message"]) <= 1000 and response.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"messages": None}, "missing_required_parameter", "messages"),
        ({"messages": []}, "empty_array", "messages"),
        ({"messages": "Hi!"}, "invalid_type", "messages"),
        ({"messages": [3]}, "invalid_type", "messages[0]"),
        ({"messages": [{"content": "x"}]}, "missing_required_parameter", "messages[0].role"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": [], "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "invalid_type", "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "invalid_value", "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "unsupported_value",
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "missing_required_parameter", "messages[0].tool_call_id"),
        ({"model": 3}, "invalid_type", "model"),
        ({"max_tokens": "3"}, "invalid_type", "max_tokens"),
        ({"max_tokens": True}, "invalid_type", "max_tokens"),
        ({"max_tokens": 2.5}, "invalid_type", "max_tokens"),
        ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
        ({"max_tokens": CONTEXT_LEN + 1}, "integer_above_max_value", "max_tokens"),
        ({"max_completion_tokens": 0}, "integer_below_min_value", "max_completion_tokens"),
        ({"n": 0}, "integer_below_min_value", "n"),
        ({"n": 129}, "integer_above_max_value", "n"),
        ({"temperature": -0.1}, "decimal_below_min_value", "temperature"),
        ({"temperature": 2.1}, "decimal_above_max_value", "temperature"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"top_p": 0}, "decimal_below_min_value", "top_p"),
        ({"top_k": -2}, "integer_below_min_value", "top_k"),
        ({"seed": 2**63}, "integer_above_max_value", "seed"),
        ({"stop": ["a"] * 17}, "array_above_max_length", "stop"),
        ({"stop": ""}, "invalid_value", "stop"),
        ({"stop": ["a", 3]}, "invalid_type", "stop[1]"),
        ({"stop_token_ids": [-1]}, "integer_below_min_value", "stop_token_ids[0]"),
        ({"stop_token_ids": [99_999]}, "integer_above_max_value", "stop_token_ids"),
        ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "integer_above_max_value", "top_logprobs"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "invalid_type", "stream_options.include_usage"),
        ({"stream": True, "stream_options": []}, "invalid_type", "stream_options"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
        ({"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type"),
        ({"reasoning_effort": "enormous"}, "invalid_value", "reasoning_effort"),
        ({"chat_template_kwargs": {"messages": []}}, "invalid_value", "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "invalid_type", "chat_template_kwargs.enable_thinking"),
        ({"priority": 1001}, "integer_above_max_value", "priority"),
        ({"service_class": "royal"}, "invalid_value", "service_class"),
        ({"tools": {}}, "invalid_type", "tools"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid_value", "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
            "unsupported_parameter",
            "tools[0].function.strict",
        ),
        ({"tools": [TOOL], "tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
        ({"tools": [TOOL], "tool_choice": TOOL}, "unsupported_parameter", "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "invalid_value", "tool_choice"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"logit_bias": {"5": 1}}, "unsupported_parameter", "logit_bias"),
        ({"presence_penalty": 0.5}, "unsupported_parameter", "presence_penalty"),
        ({"guided_json": {}}, "unsupported_parameter", "guided_json"),
        ({"min_p": True}, "unsupported_parameter", "min_p"),
    ],
)
def test_a_mistake_names_its_field(http: httpx.Client, reciter: Reciter, fields: Any, code: str, param: str) -> None:
    response = http.post(CHAT, json={"messages": HI, **fields})
    error = error_of(response)
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == (code, param)
    assert param.rsplit(".")[0] in error["message"] and reciter.requests == []


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({}, "missing_required_parameter", "prompt"),
        ({"prompt": ""}, "empty_array", "prompt"),
        ({"prompt": []}, "empty_array", "prompt"),
        ({"prompt": [[]]}, "empty_array", "prompt"),
        ({"prompt": 3}, "invalid_type", "prompt"),
        ({"prompt": [3, "a"]}, "invalid_type", "prompt"),
        ({"prompt": ["a", 3]}, "invalid_type", "prompt"),
        ({"prompt": [[3], [-1]]}, "integer_below_min_value", "prompt"),
        ({"prompt": [10**9]}, "integer_above_max_value", "prompt"),
        ({"prompt": ["a"] * 600, "n": 2}, "array_above_max_length", "prompt"),
        ({"prompt": "a", "logprobs": 6}, "integer_above_max_value", "logprobs"),
        ({"prompt": "a", "logprobs": True}, "invalid_type", "logprobs"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "unsupported_parameter", "echo"),
        ({"prompt": "a", "suffix": "b"}, "unsupported_parameter", "suffix"),
        ({"prompt": "a", "best_of": 2}, "unsupported_parameter", "best_of"),
        ({"prompt": "a", "max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    ],
)
def test_a_mistake_in_a_completion_names_its_field(
    http: httpx.Client, reciter: Reciter, fields: Any, code: str, param: str
) -> None:
    response = http.post(COMPLETIONS, json=fields)
    assert response.status_code == 400 and reciter.requests == []
    assert (error_of(response)["code"], error_of(response)["param"]) == (code, param)


def test_the_words_are_those_that_clients_know(http: httpx.Client) -> None:
    def message(**fields: Any) -> Any:
        return error_of(http.post(CHAT, json={"messages": HI, **fields}))["message"]

    assert message(max_tokens="3") == ("Invalid type for 'max_tokens': expected an integer, but got a string instead.")
    assert message(n=130) == ("Invalid 'n': integer above maximum value. Expected a value <= 128, but got 130 instead.")
    assert message(messages=None) == "Missing required parameter: 'messages'."


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'{"messages": NaN}',
        b'{"n": Infinity}',
        b'\xff{"n": 1}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
)
def test_what_is_no_json_object_is_refused(http: httpx.Client, body: bytes) -> None:
    response = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    error = error_of(response)
    assert (response.status_code, error["type"], error["code"]) == (400, "invalid_request_error", None)


def test_half_a_character_is_told_of_by_its_field(http: httpx.Client) -> None:
    """It was told to be a body cut off."""
    for said, param, position in (
        (b'{"model": "ab\\ud800"}', "model", 2),
        (b'{"messages": [{"role": "user", "content": "\\udc00 \\ud83e\\udd8a"}]}', "messages[0].content", 0),
        (b'{"tools": {"\\ud800": 1}}', "tools.\\ud800", 0),
    ):
        error = error_of(http.post(CHAT, content=said, headers={"content-type": "application/json"}))
        assert error["param"] == param and f"a lone surrogate at character {position}." in error["message"]
        assert "truncated" not in error["message"]


def test_a_number_beyond_all_is_told_of_by_its_field(http: httpx.Client) -> None:
    for number in (b"1e400", b"1" + b"0" * 400):
        body = b'{"messages": [{"role": "user", "content": "Hi!"}], "temperature": ' + number + b"}"
        error = error_of(http.post(CHAT, content=body, headers={"content-type": "application/json"}))
        assert (
            error["param"] == "temperature" and "expected a finite number, but got an integer" not in error["message"]
        )


def test_a_body_has_to_be_declared_as_json(http: httpx.Client) -> None:
    response = http.post(CHAT, content=json.dumps({"messages": HI}), headers={"content-type": "text/plain"})
    assert response.status_code == 400 and "application/json" in error_of(response)["message"]


def test_errors_do_not_repeat_what_was_sent(http: httpx.Client) -> None:
    long = "secret" * 20_000
    for fields in ({"max_tokens": long}, {"stop": [long] * 20}, {"tool_choice": long}, {"model": long}, {long: 1}):
        assert len(http.post(CHAT, json={"messages": HI, "n": 0, **fields}).content) < 1500


def test_a_prompt_beyond_the_context_is_told_in_words_that_clients_look_for(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="org/tiny", messages=[{"role": "user", "content": "x" * 3000}])
    error = caught.value
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    for words in (
        "this model's maximum context length is 2048 tokens",
        "prompt is too long",
        "context_length_exceeded",
    ):
        assert words in str(error).lower()


def test_a_model_that_is_not_served_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=HI)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "The model 'gpt-9' does not exist" in str(caught.value)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, None),
        ("POST", "/v1/chat/completions/", 404, None),
        ("GET", "/v1/chat/completions/chatcmpl-1", 404, None),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/none", 404, "model_not_found"),
    ],
)
def test_routes_that_are_none(http: httpx.Client, method: str, path: str, status: int, code: str | None) -> None:
    response = http.request(method, path)
    assert response.status_code == status and error_of(response)["code"] == code


def test_keys_open_the_server_and_only_an_administrators_its_own_routes(calls: RecitingCalls) -> None:
    settings = Settings(api_keys=("one", "two"), admin_keys=("root",))
    with served(calls, settings) as address, httpx.Client(base_url=address) as http:
        refused = http.get("/v1/models")
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert error_of(refused)["code"] == "invalid_api_key"
        assert http.get("/v1/models", headers={"authorization": "Bearer three"}).status_code == 401
        assert http.get("/v1/models", headers={"authorization": "Basic two"}).status_code == 401
        assert http.get("/v1/models", headers={"authorization": "bearer two"}).status_code == 200
        assert http.get("/v1/models", headers={"x-api-key": "one"}).status_code == 200
        assert http.get("/health").status_code == 200
        assert http.post("/tokenize", json={"prompt": "a"}).status_code == 401
        assert http.get("/metrics").status_code == 401
        forbidden = http.post("/flush_cache", headers={"authorization": "Bearer one"})
        assert forbidden.status_code == 403 and error_of(forbidden)["code"] == "insufficient_permissions"
        assert http.post("/flush_cache", headers={"authorization": "Bearer root"}).json()["num_tokens"] == 7


def test_pages_from_anywhere_may_call_and_read_why_they_may_not(calls: RecitingCalls) -> None:
    with served(calls, Settings(api_keys=("one",))) as address, httpx.Client(base_url=address) as http:
        origin = {"origin": "https://chat.example"}
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        preflight = http.options(CHAT, headers={**origin, **asked})
        assert preflight.status_code == 200
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        refused = http.post(CHAT, json={}, headers=origin)
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "*"
        assert "x-request-id" in refused.headers["access-control-expose-headers"]


def test_bodies_that_are_too_large_are_refused(calls: RecitingCalls) -> None:
    settings = Settings(max_body_bytes=4000, max_json_bytes=2000)
    with served(calls, settings) as address, httpx.Client(base_url=address) as http:
        for size in (3000, 5000):
            response = http.post(CHAT, json={"messages": "x" * size})
            assert response.status_code == 413 and error_of(response)["code"] == "request_too_large"
        pieces = http.post(CHAT, content=iter([b" " * 1000] * 9), headers={"content-type": "application/json"})
        assert pieces.status_code == 413


def test_requests_carry_their_id_or_get_one(http: httpx.Client) -> None:
    assert http.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    odd = http.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"]
    assert odd != "a b" and odd != http.get("/health").headers["x-request-id"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_full_server_says_when_to_come_again(http: httpx.Client, reciter: Reciter, is_streamed: bool) -> None:
    reciter.refusal = Overloaded("The queue is full.")
    response = http.post(CHAT, json={"messages": HI, "stream": is_streamed, "n": 2})
    assert response.status_code == 503 and response.headers["retry-after"] == "2"
    assert (error_of(response)["type"], error_of(response)["code"]) == ("server_error", "server_overloaded")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_engine_that_is_gone_is_an_error_of_the_server(
    http: httpx.Client, reciter: Reciter, path: str, is_streamed: bool
) -> None:
    reciter.refusal = EngineDied("The engine died.")
    response = http.post(path, json={"messages": HI, "prompt": "a", "stream": is_streamed})
    assert response.status_code == 500
    assert (error_of(response)["type"], error_of(response)["code"]) == ("server_error", "internal_error")


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        ("engine_died", 500, "internal_error"),
        ("step_failed", 500, "internal_error"),
        ("server_overloaded", 503, "server_overloaded"),
        ("request_aborted", 400, "request_aborted"),
        ("insufficient_memory", 400, "insufficient_memory"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_fails_before_anything_was_shown_has_its_own_status(
    http: httpx.Client, reciter: Reciter, failure: str, status: int, code: str, is_streamed: bool
) -> None:
    reciter.answers = [Answer("", failure=failure)]
    response = http.post(CHAT, json={"messages": HI, "stream": is_streamed})
    assert response.status_code == status and error_of(response)["code"] == code
    assert status == 400 or "/srv" not in response.text


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_fails_in_the_middle_of_a_stream_is_told_in_a_frame(
    http: httpx.Client, reciter: Reciter, path: str
) -> None:
    reciter.answers = [Answer("Hello", failure="engine_died")]
    reciter.pause_after = 2
    body = {"messages": HI, "prompt": "a", "stream": True}
    with http.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        text = ""
        for piece in response.iter_text():
            text += piece
            reciter.go_on.set()
    *_, last = frames_of(text)
    assert last.keys() == {"error"} and last["error"]["code"] == "internal_error"
    assert "/srv" not in last["error"]["message"] and text.endswith("data: [DONE]\n\n")


def test_the_client_raises_what_is_told_in_a_frame(client: openai.OpenAI, reciter: Reciter) -> None:
    reciter.answers = [Answer("Hello", failure="step_failed")]
    reciter.pause_after = 2
    with pytest.raises(openai.APIError, match="A step failed"):
        for _ in client.chat.completions.create(model="org/tiny", messages=HI, stream=True):
            reciter.go_on.set()


def test_the_others_of_a_call_end_when_one_fails(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("", failure="step_failed"), Answer("Hello there")]
    reciter.pause_after = 3
    assert http.post(CHAT, json={"messages": HI, "n": 2}).status_code == 500
    assert reciter.aborted == [reciter.requests[1].id]
