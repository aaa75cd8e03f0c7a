"""When a client leaves, what was being done for it ends; a client that only reads slowly gets everything."""

import socket
import time
from typing import Any

import httpx
import pytest

from hemiola.api.http.settings import Settings

from .text_rig import Answer, Reciter, RecitingCalls, frames_of, served, wait_until

CHAT = "/v1/chat/completions"
HI: Any = [{"role": "user", "content": "Hi!"}]


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("pause_after", [0, 3])
def test_a_client_that_leaves_ends_all_its_requests(
    http: httpx.Client, reciter: Reciter, path: str, is_streamed: bool, pause_after: int
) -> None:
    reciter.pause_after = pause_after
    body = {"messages": HI, "prompt": "a", "stream": is_streamed, "n": 2}
    with pytest.raises(httpx.ReadTimeout):
        http.post(path, json=body, timeout=0.5)
    wait_until(lambda: sorted(reciter.aborted) == sorted(request.id for request in reciter.requests))
    assert len(reciter.aborted) == 2


def test_a_client_that_left_is_counted_as_such(http: httpx.Client, reciter: Reciter) -> None:
    reciter.pause_after = 2
    with http.stream("POST", CHAT, json={"messages": HI, "stream": True}) as response:
        next(response.iter_bytes())
    wait_until(lambda: reciter.aborted != [])
    line = 'hemiola_http_responses_total{route="/v1/chat/completions",method="POST",status="499"}'
    wait_until(lambda: line in http.get("/metrics").text)


def test_a_client_that_leaves_amid_its_body_is_counted_and_no_error(
    address: str, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{".encode())
        time.sleep(0.2)
    line = 'hemiola_http_responses_total{route="/v1/chat/completions",method="POST",status="499"}'
    wait_until(lambda: line in http.get("/metrics").text)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_answer_that_was_read_aborts_nothing(http: httpx.Client, reciter: Reciter) -> None:
    for is_streamed in (False, True):
        assert http.post(CHAT, json={"messages": HI, "stream": is_streamed}).status_code == 200
    assert len(reciter.requests) == 2 and reciter.aborted == []


def test_a_slow_reader_gets_every_token(address: str, reciter: Reciter) -> None:
    text = "0123456789" * 1000
    reciter.answers = [Answer(text, "length")]
    host, port = address.removeprefix("http://").split(":")
    body = '{"prompt": "a", "max_tokens": 2000, "stream": true, "n": 8}'
    with socket.create_connection((host, int(port))) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        head = f"POST /v1/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        raw.sendall((head + body).encode())
        time.sleep(1.0)  # the server cannot send more than the buffers hold
        received = b""
        while piece := raw.recv(65536):
            received += piece
    frames = frames_of(received.decode())
    assert len(frames) == 8 * (len(reciter.tokenizer.encode(text)[:2000]) + 1)
    assert b"data: [DONE]" in received and reciter.aborted == []


def test_silence_is_filled_with_comments(calls: RecitingCalls, reciter: Reciter) -> None:
    reciter.pause_after = 0
    settings = Settings(keep_alive_s=0.05, first_event_s=0.05)
    body = {"messages": HI, "stream": True}
    with served(calls, settings) as address, httpx.stream("POST", f"{address}{CHAT}", json=body) as response:
        text = ""
        for piece in response.iter_text():
            text += piece
            if text.count(": keep-alive\n\n") == 3:
                reciter.go_on.set()
    assert [f["choices"][0]["delta"].get("content", "") for f in frames_of(text)][:2] == ["", "H"]
    assert text.endswith("data: [DONE]\n\n")


def test_others_are_answered_while_streams_run(http: httpx.Client, reciter: Reciter) -> None:
    """A long prompt is tokenized on a thread, not in the way of everybody."""
    reciter.pause_after = 1
    with http.stream("POST", CHAT, json={"messages": HI, "stream": True}) as response:
        next(response.iter_bytes())
        slow = {"messages": [{"role": "user", "content": "word " * 200_000}]}
        with httpx.Client(base_url=str(http.base_url), timeout=30) as other:
            assert other.post(CHAT, json=slow).json()["error"]["code"] == "context_length_exceeded"
        assert http.get("/health").status_code == 200
        reciter.go_on.set()
