"""What the client gives is what the engine behind the server gives: text, pictures, clips."""

import asyncio
import io
import threading
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from hemiola.api.client import Client
from hemiola.api.engine import Engine
from hemiola.api.front.terms import COMPLETION_MAX_TOKENS, CallTerms
from hemiola.core.events import Finished, Image, Progress, Token, Video

CHAT, IMAGE, VIDEO = "hemiola-tiny-chat", "hemiola-tiny-image", "hemiola-tiny-video"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


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


def test_a_completion_that_says_nothing_of_its_length_has_the_apis_16_tokens(engine: Engine, client: Client) -> None:
    for asked in (client, engine):
        completion = asked.complete("Once upon a time", temperature=0.0, ignore_eos=True)
        assert (completion.usage.completion_tokens, completion.finish_reason) == (16, "length")


def test_a_completion_without_a_limit_goes_on_until_the_model_ends_its_turn(engine: Engine, client: Client) -> None:
    """As a chat does, whose turn it is; how long that is, is the model's affair."""
    question = "Tell me a short story about a fox."
    (request,) = engine.text_front(CHAT).chat_requests(question, CallTerms())
    turn = engine.chat(question, temperature=0.0, max_tokens=None)
    ours, theirs = (asked.complete(request.token_ids, temperature=0.0, max_tokens=None) for asked in (client, engine))
    assert ours.finish_reason == theirs.finish_reason == "stop"
    assert ours.usage.completion_tokens == theirs.usage.completion_tokens == turn.usage.completion_tokens
    assert ours.text == theirs.text == turn.text
    assert ours.usage.completion_tokens > COMPLETION_MAX_TOKENS, "a shorter turn would end within the default, too"


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
    assert ours.model == theirs.model == IMAGE, "not named in the call, so it is the server that tells it"
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
