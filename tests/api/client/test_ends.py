"""Calls of the client that end early or badly, and how it is said."""

import asyncio
import socket
from typing import Any

import pytest

from hemiola.api.client import Client
from hemiola.api.client.errors import Unreachable
from hemiola.api.engine import Engine
from hemiola.api.front.terms import CallTerms
from hemiola.api.stream import Stream
from hemiola.core.errors import (
    ContextTooLong,
    HemiolaError,
    InvalidRequest,
    ModelNotFound,
    RequestAborted,
)
from hemiola.core.events import Failed, Token
from hemiola.tests.api.http.text_rig import wait_until

CHAT, IMAGE, VIDEO = "hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def is_idle(engine: Engine) -> bool:
    return not engine._streams


# Ends


def test_cancelling_a_chat_frees_the_engine(engine: Engine, client: Client) -> None:
    stream = client.stream_chat("Tell me a long story.", ignore_eos=True, n=3)
    assert isinstance(next(iter(stream)), Token)
    assert not is_idle(engine)
    stream.cancel()
    with pytest.raises(RequestAborted):
        stream.result(10)
    wait_until(lambda: is_idle(engine))
    assert [type(event) for event in stream][-1] is Failed


def test_cancelling_before_anything_was_sent_ends_a_stream(engine: Engine, client: Client) -> None:
    chat, clip = client.stream_chat("Hello", ignore_eos=True), client.stream_video("a ball", num_inference_steps=50)
    streams: list[Stream[Any]] = [chat, clip]
    for stream in streams:
        stream.cancel()
        with pytest.raises(RequestAborted):
            stream.result(10)
    wait_until(lambda: is_idle(engine))


def test_cancelling_a_clip_deletes_its_job(engine: Engine, client: Client) -> None:
    stream = client.stream_video("a ball moves to the right", num_inference_steps=50)
    wait_until(lambda: not is_idle(engine))
    stream.cancel()
    with pytest.raises(RequestAborted):
        stream.result(10)
    wait_until(lambda: is_idle(engine))
    assert _jobs(client) == []


def test_a_finished_clip_leaves_no_job(client: Client) -> None:
    client.video("a ball", num_frames=1, num_inference_steps=1)
    assert _jobs(client) == []


def _jobs(client: Client) -> object:
    listed: list[object] = []

    async def look() -> None:
        listed.append(await client._connection.ask("GET", "/v1/videos"))

    client._connection.start("look", look(), lambda: None)
    wait_until(lambda: listed)
    return listed[0][0]["data"]  # type: ignore[index]


async def test_a_cancelled_coroutine_frees_the_engine(engine: Engine, client: Client) -> None:
    task = asyncio.ensure_future(client.acomplete("One, two,", ignore_eos=True))
    while is_idle(engine):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while not is_idle(engine):
        await asyncio.sleep(0.01)


def test_closing_ends_what_runs(engine: Engine, address: str) -> None:
    client = Client(f"{address}/v1/", "secret")
    stream = client.stream_chat("Tell me a long story.", ignore_eos=True)
    assert isinstance(next(iter(stream)), Token)
    client.close()
    client.close()
    with pytest.raises(RequestAborted):
        stream.result(5)
    wait_until(lambda: is_idle(engine))
    with pytest.raises(HemiolaError, match="closed"):
        client.chat("Hello")


# Errors


def test_mistakes_are_the_engines_errors_with_their_field(client: Client) -> None:
    for kind, options, param in (
        ("chat", {"temperature": 9}, "temperature"),
        ("chat", {"top_p": 0.0}, "top_p"),
        ("complete", {"logprobs": 6}, "logprobs"),
        ("image", {"size": "100x100"}, "size"),
        ("image", {"num_inference_steps": 0}, "num_inference_steps"),
        ("video", {"fps": 0}, "fps"),
        ("chat", {"n": 0}, "n"),
        ("chat", {"temperature": float("nan")}, "temperature"),
        ("image", {"size": "large"}, "size"),
        ("image", {"pixel_type": "float32"}, "pixel_type"),
        ("chat", {"terms": CallTerms(deadline_s=1.0)}, "deadline_s"),
        ("chat", {"terms": CallTerms(tenant="me")}, "tenant"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            getattr(client, kind)("a fox", **options)
        assert caught.value.param == param, (kind, options)


def test_an_error_says_as_much_as_the_engines(engine: Engine, client: Client) -> None:
    for asked in (engine, client):
        with pytest.raises(ContextTooLong, match="context_length_exceeded") as caught:
            asked.chat("word " * 5000)
        assert caught.value.param == "messages"
        with pytest.raises(ModelNotFound, match="no-such"):
            asked.chat("Hello", model="no-such")
        with pytest.raises(InvalidRequest, match="makes no image"):
            asked.image("a fox", model=CHAT)


def test_an_id_is_used_once_at_a_time(engine: Engine, client: Client) -> None:
    for asked in (engine, client):
        stream = asked.stream_chat("Hello", ignore_eos=True, terms=CallTerms(id="mine"))
        with pytest.raises(InvalidRequest, match="in use"):
            asked.stream_chat("Hello", terms=CallTerms(id="mine"))
        stream.cancel()
        with pytest.raises(RequestAborted):
            stream.result(10)
    wait_until(lambda: is_idle(engine))
    assert client.chat("Hello", terms=CallTerms(id="mine"), max_tokens=2).answers


async def test_coroutines_get_the_same_errors(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="max_tokens"):
        await client.achat("Hello", max_tokens=0)


def test_a_wrong_key_is_said(address: str) -> None:
    with Client(address) as client, pytest.raises(InvalidRequest) as caught:
        client.chat("Hello")
    assert (caught.value.param, caught.value.code) == ("api_key", "invalid_api_key")


def test_an_address_that_is_none() -> None:
    with pytest.raises(InvalidRequest, match="url"):
        Client("localhost")


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", max_retries=0) as client, pytest.raises(Unreachable, match=str(port)):
        client.chat("Hello")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"url": 5}, "Invalid 'url': 5"),
        ({"timeout": 0}, "Invalid 'timeout': 0"),
        ({"timeout": "1"}, "Invalid 'timeout': '1'"),
        ({"max_retries": -1}, "Invalid 'max_retries': .* -1 instead"),
        ({"max_retries": None}, "Invalid type for 'max_retries'"),
        ({"api_key": "secret\n"}, r"Invalid 'api_key'\. Allowed: printable"),
    ],
)
def test_what_makes_no_connection_is_refused_at_once(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        Client(**{"url": "http://127.0.0.1:1", **wrong})
    assert "secret" not in str(caught.value)
