"""Servers that are not ours or not well, bytes cut anywhere, and the command line that asks a server."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from hemiola.api.cli import main
from hemiola.api.client import Client
from hemiola.api.client.errors import ConnectionLost, NoAnswer, error_of
from hemiola.api.client.sse import FrameParser
from hemiola.core.errors import (
    CannotFit,
    HemiolaError,
    Overloaded,
)

CHAT, IMAGE, VIDEO = "hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def _decoded(data: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    with av.open(io.BytesIO(data)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


# Other servers


def _chunks(*values: str) -> bytes:
    body = "".join(f"data: {value}\r\n\r\n" for value in values).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body


def _whole(body: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def _answer(listener: socket.socket, response: bytes) -> None:
    """Answers one request with these bytes and hangs up."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(10)
        connection.recv(1 << 16)
        connection.sendall(response)


@pytest.fixture
def canned() -> Iterator["socket.socket"]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def _ask(listener: socket.socket, response: bytes, kind: str = "chat", timeout: float = 10.0) -> Any:
    threading.Thread(target=_answer, args=(listener, response), daemon=True).start()
    with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=timeout, max_retries=0) as client:
        return getattr(client, kind)("Hello", model="m")


def test_a_server_that_comes_up_late_is_waited_for() -> None:
    """Nothing was sent to it before, so nothing is asked twice."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]

        def answer() -> None:
            time.sleep(0.2)
            listener.listen()
            _answer(listener, _chunks('{"choices":[{"delta":{"content":"late"},"finish_reason":"stop"}]}'))

        thread = threading.Thread(target=answer)
        thread.start()
        with Client(f"http://127.0.0.1:{port}") as client:
            assert client.chat("Hello").text == "late"
        thread.join()


def test_a_server_that_does_not_stream(canned: socket.socket) -> None:
    body = (
        '{"model":"x","choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",'
        '"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"function_call"}],'
        '"usage":{"prompt_tokens":3,"completion_tokens":4}}'
    )
    completion = _ask(canned, _whole(body))
    assert completion.model == "x"
    assert [(c.id, c.name, c.arguments) for c in completion.tool_calls] == [("c1", "f", "{}")]
    assert completion.finish_reason == "tool_calls"
    assert completion.usage.completion_tokens == 4


@pytest.mark.parametrize(
    ("response", "error", "words"),
    [
        (_chunks('{"choices":[{"delta":{"content":"half"}}]}'), ConnectionLost, "before the answer"),
        (_chunks('{"choices":[{"delta":{"content":"half'), ConnectionLost, "chunk"),
        (_chunks('{"error":{"message":"gone","code":"engine_died"}}', "[DONE]"), HemiolaError, "gone"),
        (_whole("<html>", "502 Bad Gateway"), HemiolaError, "502"),
        (_whole('{"error":"Unauthorized"}', "401 Unauthorized"), HemiolaError, "401"),
        (_whole("<html>"), ConnectionLost, "chunk"),
        (b"", ConnectionLost, "lost"),
        (_whole('{"error":{"message":"full","code":"slow_down"}}', "503 Service Unavailable"), Overloaded, "full"),
    ],
)
def test_what_else_servers_answer(
    canned: socket.socket, response: bytes, error: type[HemiolaError], words: str
) -> None:
    with pytest.raises(error, match=words):
        _ask(canned, response)


def test_a_server_that_says_nothing_is_given_up(canned: socket.socket) -> None:
    with Client(f"http://127.0.0.1:{canned.getsockname()[1]}", timeout=0.2) as client, pytest.raises(NoAnswer):
        client.chat("Hello")


def test_a_picture_that_is_not_streamed(canned: socket.socket) -> None:
    red = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
    result = _ask(canned, _whole(f'{{"data":[{{"b64_json":"{red}"}}]}}'), "image")
    assert result.pictures[0].pixels.data == b"\xff\x00\x00"
    assert result.pictures[0].seed == -1, "the server did not say"


# Parts


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_frames_do_not_depend_on_how_bytes_were_cut(size: int) -> None:
    sent = b": note\n\nevent: a\r\ndata: 1\r\ndata: 2\r\n\r\ndata:3\n\nid: 7\n\ndata: rest"
    parser = FrameParser()
    found = [frame for i in range(0, len(sent), size) for frame in parser.feed(sent[i : i + size])]
    assert found == [("", b"", b"note"), ("a", b"1\n2", b""), ("", b"3", b"")]


@pytest.mark.parametrize("size", [2**10, 2**20])
@pytest.mark.parametrize("hint", ["", "Lower 'size'."])
def test_bytes_that_cannot_be_had_are_told_as_numbers(size: int, hint: str) -> None:
    message = CannotFit("A clip", 30 * size, 10 * size, hint).message
    error = error_of({"code": "insufficient_memory", "message": message}, 400)
    assert isinstance(error, CannotFit) and error.message == message
    assert (error.bytes_needed, error.bytes_available) == (30 * size, 10 * size)


# The command line


def test_commands_ask_a_server(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--url", address, "--api-key", "secret"]
    assert main(["chat", "What is the capital of France?", "--temperature", "0", "-m", CHAT, *at]) == 0
    assert "Paris" in capsys.readouterr().out
    quick = ["--steps", "2", "--seed", "3", *at]
    assert main(["image", "a fox", "-n", "2", "--size", "64x64", "-o", str(tmp_path / "fox.png"), *quick]) == 0
    assert (tmp_path / "fox-1.png").exists() and "(seed 4)" in capsys.readouterr().out
    assert main(["video", "a fox", "--frames", "5", "-o", str(tmp_path / "fox.mp4"), *quick]) == 0
    assert len(_decoded((tmp_path / "fox.mp4").read_bytes())) == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "http://127.0.0.1:9", "--threads", "1"], ["--threads", "--url"]),
        (["--api-key", "secret"], ["--api-key", "--url"]),
        (["--url", "nowhere"], ["url", "nowhere"]),
    ],
)
def test_commands_refuse_what_is_up_to_the_server(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "Hello", *arguments]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
