"""Whatever is sent, the answer is a good one or says whose mistake it was; never one of the server's."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hemiola.api.http.app import create_app
from hemiola.api.http.field_docs import ENDPOINTS

from .text_rig import Answer, RecitingCalls

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")
NAMES = sorted({name for path in PATHS for name in ENDPOINTS[f"POST {path}"].honoured})
FEW = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["user", "assistant", "tool", "function", "auto", "none", "text", "image_url", "allowed_tools"])
)
keys = st.text(max_size=8) | st.sampled_from(
    [*NAMES, "role", "content", "type", "text", "function", "name", "arguments", "tool_calls", "include_usage", "mode"]
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=20
)
texts = st.text(max_size=9)
parts = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}) | values, max_size=2)
called = st.fixed_dictionaries({"name": texts, "arguments": texts}) | values
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "function"]), "content": texts | parts},
    optional={
        "tool_calls": st.lists(st.fixed_dictionaries({"function": called}) | values, max_size=2),
        "name": texts | values,
        "reasoning": texts | values,
        "function_call": called,
    },
)
tool = st.fixed_dictionaries({"type": st.just("function"), "function": st.just({"name": "f"}) | called})
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": st.lists(message, min_size=1, max_size=3),
        "tools": st.lists(tool, max_size=2),
    },
    "/v1/completions": {"prompt": texts | st.lists(texts, max_size=3) | st.lists(st.integers(0, 200), max_size=4)},
    "/tokenize": {"messages": st.lists(message, max_size=3)},
    "/detokenize": {"tokens": st.lists(st.integers(0, 300))},
}


def bodies_of(path: str) -> st.SearchStrategy[dict[str, Any]]:
    """Sensible ones, in which up to three fields are whatever."""
    names = st.sampled_from(sorted(ENDPOINTS[f"POST {path}"].honoured))
    good = st.fixed_dictionaries(VALID[path], optional={"stream": st.booleans(), "n": st.integers(1, 3)})
    return st.builds(lambda body, odd: body | odd, good, st.dictionaries(names, values, max_size=3))


@pytest.fixture(scope="module")
def app(model_folder: Any) -> Iterator[Any]:
    calls = RecitingCalls(model_folder)
    calls.reciter.answers = [Answer("ok")]
    yield create_app(calls)
    calls.close()


def post(app: Any, path: str, content: bytes | None = None, body: Any = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            if content is not None:
                return await client.post(path, content=content, headers={"content-type": "application/json"})
            return await client.post(path, json=body)

    return asyncio.run(ask())


def check(response: httpx.Response) -> None:
    assert response.status_code in (200, 400, 404), response.text
    if response.status_code != 200:
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error" and len(response.content) < 8000
    assert "internal_error" not in response.text


@pytest.mark.parametrize("path", PATHS)
@given(data=st.data())
@FEW
def test_any_fields_are_answered_or_refused(app: Any, path: str, data: st.DataObject) -> None:
    check(post(app, path, body=data.draw(bodies_of(path))))


@pytest.mark.parametrize("path", PATHS)
@given(body=values)
@FEW
def test_any_json_is_answered_or_refused(app: Any, path: str, body: Any) -> None:
    check(post(app, path, body=body))


@given(content=st.binary(max_size=200))
@FEW
def test_any_bytes_are_refused(app: Any, content: bytes) -> None:
    assert post(app, PATHS[0], content=content).status_code == 400


def test_refusals_leave_nothing_behind(app: Any) -> None:
    def num_objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    wrong = {"messages": [{"role": "user", "content": "x"}], "n": 3, "stop": [""] * 3}
    for _ in range(20):
        check(post(app, PATHS[0], body=wrong))
    before = num_objects()
    for _ in range(200):
        check(post(app, PATHS[0], body=wrong))
    assert num_objects() < before + 200
