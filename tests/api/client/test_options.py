"""What is refused of a call before anything is asked for: options that do not exist, sizes, and choices."""

from typing import Any

import numpy as np
import pytest

from hemiola.api.client import Client
from hemiola.api.engine import Engine
from hemiola.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("kind", "option", "hint"),
    [
        ("image", "steps", "num_inference_steps"),
        ("image", "guidance", "guidance_scale"),
        ("image", "width", "size"),
        ("video", "frames", "num_frames"),
        ("image", "frames", None),
        ("image", "fps", None),
        ("image", "num_frames", None),
        ("video", "n", None),
    ],
)
def test_options_of_pictures_and_clips_are_their_own_and_found_by_other_names(
    engine: Engine, kind: str, option: str, hint: str | None
) -> None:
    """`image(steps=1)` had no hint, and clips' options were listed for pictures."""
    with Client("http://127.0.0.1:9") as client:  # asks no server for that
        for calls in (engine, client):
            with pytest.raises(InvalidRequest, match=f"There is no option '{option}'") as refused:
                getattr(calls, kind)("a fox", **{option: 1})
            said, _, allowed = refused.value.message.partition(" Allowed: ")
            assert (f"Did you mean '{hint}'?" in said) if hint else ("Did you mean" not in said)
            listed = set(allowed.rstrip(".").split(", "))
            assert "seed" in listed and option not in listed
            assert ({"fps", "num_frames"} <= listed) is (kind == "video") and ("n" in listed) is (kind == "image")


def test_options_that_do_not_exist_are_named_by_every_call_of_a_client() -> None:
    """They were a TypeError."""
    with Client("http://127.0.0.1:9") as client:
        for call in ("chat", "complete", "scores", "image", "video"):
            with pytest.raises(InvalidRequest, match=r"no option 'mesages'.*Allowed: .*"):
                getattr(client, call)("Hi!", mesages=1)
        with pytest.raises(InvalidRequest, match="Did you mean 'max_tokens'"):
            client.chat("Hi!", max_new_tokens=4)


@pytest.mark.parametrize("size", ["63x63", (64, 63), "2048x64", "0x64"])
def test_a_size_that_does_not_fit_is_refused_as_it_was_said(
    engine: Engine, client: Client, size: str | tuple[int, int]
) -> None:
    """It was reported of a field 'width', which no call has."""
    said = size if isinstance(size, str) else "64x63"
    for calls in (engine, client):
        with pytest.raises(InvalidRequest, match=rf"'size': '?{said}.*multiples of 16, at most 1024x1024") as refused:
            calls.image("a fox", size=size)
        assert refused.value.param == "size"


def test_choices_are_checked_as_prompts_are(engine: Engine, client: Client) -> None:
    """A lone surrogate was a TypeError of the tokenizer."""
    for calls in (engine, client):
        with pytest.raises(InvalidRequest, match=r"'choices': not valid Unicode, a lone surrogate at character 1") as e:
            calls.scores(["red", "x\ud800"], messages="Which colour?")
        assert e.value.param == "choices"


@pytest.mark.parametrize(
    ("call", "options", "param", "says"),
    [
        ("chat", {"stop": ["\ud800"]}, "stop[0]", "a lone surrogate at character 0"),
        ("chat", {"temperature": float("inf")}, "temperature", "a finite number, but got NaN or infinity"),
        ("image", {"negative_prompt": "a\udfff"}, "negative_prompt", "a lone surrogate at character 1"),
        ("image", {"guidance_scale": float("nan")}, "guidance_scale", "a finite number, but got NaN or infinity"),
        ("video", {"guidance_scale": float("nan")}, "guidance_scale", "a finite number, but got NaN or infinity"),
    ],
)
def test_what_json_cannot_say_is_refused_by_its_field_as_by_an_engine(
    engine: Engine, client: Client, call: str, options: dict[str, Any], param: str, says: str
) -> None:
    """A client named the field 'request'."""
    for calls in (engine, client):
        with pytest.raises(InvalidRequest, match=says) as refused:
            getattr(calls, call)("a fox", **options)
        assert refused.value.param == param


@pytest.mark.parametrize(
    "options",
    [{"guidance_scale": 1e38}, {"num_inference_steps": 201}, {"seed": 2**63}, {"prompt": "a" * 32_001}, {"prompt": ""}],
)
@pytest.mark.parametrize("call", ["image", "video"])
def test_what_a_server_refuses_of_pictures_an_engine_does_too(
    engine: Engine, client: Client, call: str, options: dict[str, Any]
) -> None:
    """With a guidance scale of 1e38 an engine painted everything black, and a server said that it is too large."""
    options = dict(options)
    (param,) = options
    prompt = options.pop("prompt", "a fox")
    said = set()
    for calls in (engine, client):
        with pytest.raises(InvalidRequest) as refused:
            getattr(calls, call)(prompt, **options)
        assert refused.value.param == param
        said.add(refused.value.message)
    assert len(said) == 1


def test_a_size_may_be_left_to_the_model(engine: Engine, client: Client) -> None:
    """'auto' was for servers alone."""
    sizes = [
        picture.pixels
        for c in (engine, client)
        for picture in c.image("a fox", size="auto", num_inference_steps=1).pictures
    ]
    assert len({(pixels.width, pixels.height) for pixels in sizes}) == 1


def test_numbers_of_numpy_are_numbers(engine: Engine, client: Client) -> None:
    """They were refused as "a int64"."""
    own: dict[str, Any] = {"max_tokens": 5, "seed": 4, "n": 2, "temperature": 0.5, "top_k": 9}
    theirs = own | {"max_tokens": np.int64(5), "seed": np.int32(4), "n": np.int64(2), "temperature": np.float32(0.5)}
    for calls in (engine, client):
        texts, expected = ([a.text for a in calls.chat("Hi!", **each).answers] for each in (theirs, own))
        assert texts == expected and len(texts) == 2
        tokens: Any = [np.int64(5), np.int64(7)]
        assert calls.complete(tokens, max_tokens=3).text == calls.complete([5, 7], max_tokens=3).text
        picture = calls.image("a fox", seed=np.int64(3), size=(np.int64(64), 64), num_inference_steps=np.int8(1), n=1)
        assert picture.image.size == (64, 64) and picture.pictures[0].seed == 3
        with pytest.raises(InvalidRequest, match=r"'seed'.*but got -1 instead"):
            calls.image("a fox", seed=np.int64(-1))
        with pytest.raises(InvalidRequest, match=r"'temperature'.*NaN or infinity"):
            calls.chat("Hi!", temperature=np.float32("nan"))
