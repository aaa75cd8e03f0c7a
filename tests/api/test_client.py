"""The client of a server on a real port, over the engine and models whose own answers are what it has to give."""

import asyncio
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
from hemiola.api.client.errors import ConnectionLost, NoAnswer, Unreachable, error_of
from hemiola.api.client.sse import FrameParser
from hemiola.api.engine import Engine
from hemiola.api.front.terms import CallTerms
from hemiola.api.http.settings import Settings
from hemiola.api.stream import Stream
from hemiola.core.errors import (
    CannotFit,
    ContextTooLong,
    HemiolaError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    RequestAborted,
)
from hemiola.core.events import Failed, Finished, Image, Progress, Token, Video
from hemiola.tests.api.http.text_rig import served, wait_until

CHAT, IMAGE, VIDEO = "hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("demo", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def address(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = Settings(api_keys=("secret",), data_dir=tmp_path_factory.mktemp("data"))
    with served(engine, settings) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address, "secret") as client:
        yield client


def is_idle(engine: Engine) -> bool:
    return not engine._streams


# Text


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 5, "top_p": 0.9, "top_k": 40},
        {"temperature": 1.0, "seed": -7, "n": 3, "max_tokens": 12},
        {"temperature": 0.0, "stop": ["."]},
        {"temperature": 0.0, "enable_thinking": True, "max_tokens": 120},
        {"temperature": 0.0, "ignore_eos": True, "max_tokens": 40},
    ],
)
def test_a_chat_is_what_the_engine_says(engine: Engine, client: Client, options: dict[str, Any]) -> None:
    ours, theirs = client.chat("Why is the sky blue?", **options), engine.chat("Why is the sky blue?", **options)
    assert ours.model == theirs.model
    assert [a.text for a in ours.answers] == [a.text for a in theirs.answers]
    assert [a.raw_text for a in ours.answers] == [a.raw_text for a in theirs.answers]
    assert [a.reasoning for a in ours.answers] == [a.reasoning for a in theirs.answers]
    assert [a.finish_reason for a in ours.answers] == [a.finish_reason for a in theirs.answers]
    assert [a.reasoning_tokens for a in ours.answers] == [a.reasoning_tokens for a in theirs.answers]
    assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens
    assert ours.usage.completion_tokens == theirs.usage.completion_tokens > 0


def test_tool_calls_are_the_engines(engine: Engine, client: Client) -> None:
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [WEATHER], "temperature": 0.0, "max_tokens": 80}
    ours, theirs = client.chat(messages, **options), engine.chat(messages, **options)
    assert ours.finish_reason == theirs.finish_reason
    assert [(c.name, c.arguments) for c in ours.tool_calls] == [(c.name, c.arguments) for c in theirs.tool_calls]
    assert ours.tool_calls, "the model is expected to call the tool"
    assert ours.answers[0].raw_text == theirs.answers[0].raw_text


def test_completions_of_texts_and_ids_are_the_engines(engine: Engine, client: Client) -> None:
    ids = engine.text_front(CHAT).tokenizer.encode("Once upon a time")
    for prompt in ("The capital of France is", ids, ["One, two,", "The sun is"]):
        options = {"temperature": 0.8, "seed": 3, "n": 2, "max_tokens": 10}
        ours, theirs = client.complete(prompt, **options), engine.complete(prompt, **options)
        assert [a.text for a in ours.answers] == [a.text for a in theirs.answers]
        assert ours.answers_per_prompt == theirs.answers_per_prompt == 2
        assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens


def test_a_completion_without_a_limit_goes_on_as_in_the_engine(engine: Engine, client: Client) -> None:
    """And not for the API's 16 tokens: until the model ends its turn."""
    (request,) = engine.text_front(CHAT).chat_requests("Tell me a story.", CallTerms())
    ours, theirs = (asked.complete(request.token_ids, temperature=0.0) for asked in (client, engine))
    assert ours.finish_reason == theirs.finish_reason == "stop"
    assert ours.usage.completion_tokens == theirs.usage.completion_tokens > 16
    assert ours.text == theirs.text


def test_log_probabilities_are_the_engines(engine: Engine, client: Client) -> None:
    options = {"temperature": 0.0, "max_tokens": 8, "logprobs": 3}
    for kind in ("chat", "complete"):
        ours, theirs = (
            getattr(asked, kind)("Tell me a story", **options).answers[0].tokens for asked in (client, engine)
        )
        assert [t.logprob for t in ours] == pytest.approx([t.logprob for t in theirs], abs=1e-4)
        assert len(ours[0].top_logprobs) == 3
        assert "".join(t.text for t in ours) == "".join(t.text for t in theirs)


def test_events_come_one_by_one_and_end_with_finished(client: Client) -> None:
    stream = client.stream_chat("Tell me a story.", temperature=0.0, max_tokens=20, ignore_eos=True)
    *tokens, last = list(stream)
    assert all(isinstance(event, Token) for event in tokens) and len(tokens) > 5
    assert isinstance(last, Finished) and last.reason == "length" and last.usage.completion_tokens == 20
    assert "".join(event.text for event in tokens if isinstance(event, Token)) == stream.result().text


async def test_coroutines_wait_without_a_thread_each(engine: Engine, client: Client) -> None:
    asked = [client.achat(f"What is {i} and {i}?", temperature=0.0, max_tokens=16) for i in range(8)]
    answers = [completion.text for completion in await asyncio.gather(*asked)]
    assert answers == [engine.chat(f"What is {i} and {i}?", temperature=0.0, max_tokens=16).text for i in range(8)]
    stream = client.stream_complete("One, two,", temperature=0.0, max_tokens=5)
    assert [type(event) async for event in stream][-1] is Finished


def test_threads_share_a_client(engine: Engine, client: Client) -> None:
    said: dict[int, str] = {}

    def ask(number: int) -> None:
        said[number] = client.chat(f"Say {number}.", temperature=0.0, max_tokens=8).text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {i: engine.chat(f"Say {i}.", temperature=0.0, max_tokens=8).text for i in range(6)}


# Pictures and clips


def test_pictures_are_the_engines_pixel_by_pixel(engine: Engine, client: Client) -> None:
    options = {"seed": 4, "n": 2, "size": "64x96", "num_inference_steps": 2}
    ours, theirs = (asked.image("a red fox", **options) for asked in (client, engine))
    assert ours.model == theirs.model or ours.model == ""
    assert [picture.seed for picture in ours] == [4, 5]
    assert [picture.pixels for picture in ours] == [picture.pixels for picture in theirs]


def test_a_picture_shows_its_progress(client: Client, tmp_path: Path) -> None:
    stream = client.stream_image("a dog", num_inference_steps=3, size=(64, 64))
    events = list(stream)
    steps = [(event.done, event.total) for event in events if isinstance(event, Progress)]
    assert steps[-1][0] == steps[-1][1] and steps == sorted(steps)
    assert [type(event) for event in events[-2:]] == [Image, Finished]
    assert isinstance(events[-1], Finished) and events[-1].usage.num_steps > 0
    assert stream.result().pictures[0].seed >= 0
    assert stream.result().save(tmp_path / "dog.png").stat().st_size > 100


def test_a_clip_is_the_engines_but_for_the_codec(engine: Engine, client: Client, tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 2, "num_frames": 5, "num_inference_steps": 2, "fps": 6}
    stream = client.stream_video("a ball moves to the right", **options)
    events = list(stream)
    ours, theirs = stream.result(), engine.video("a ball moves to the right", **options)
    assert (ours.model, ours.fps, ours.seed) == (theirs.model, 6, 2)
    assert [type(event) for event in events[-2:]] == [Video, Finished]
    difference = ours.array.astype(float) - theirs.array.astype(float)
    assert ours.array.shape == theirs.array.shape
    assert 10 * np.log10(255**2 / (difference**2).mean()) > 30, "dB of PSNR"
    assert len(ours.frames) == 5
    saved = _decoded(ours.save(tmp_path / "ball.mp4").read_bytes())
    assert np.array_equal(ours.array, saved), "the file is the server's, not encoded again"


def _decoded(data: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    with av.open(io.BytesIO(data)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


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
        ("chat", {"temperature": float("nan")}, "request"),
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
        with pytest.raises(TypeError):
            asked.chat("Hello", tempreature=1)


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


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hemiola.api.client.connection._RETRY_AFTER_S", (0.01,))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(Unreachable, match=str(port)):
        client.chat("Hello")


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
    with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=timeout) as client:
        return getattr(client, kind)("Hello", model="m")


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
def test_bytes_that_cannot_be_had_are_told_as_numbers(size: int) -> None:
    message = CannotFit("A clip", 30 * size, 10 * size).message
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
