"""What is refused of a call before anything is asked for: options that do not exist, sizes, and choices."""

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
