"""What cannot be is refused before anything is allocated: the field, what was given, what is allowed."""

import dataclasses
import inspect
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

from hemiola.api.engine import Engine
from hemiola.api.front.media import MediaFront
from hemiola.api.front.terms import CallTerms
from hemiola.api.front.text import TextFront
from hemiola.core.errors import CannotFit, ContextTooLong, HemiolaError, InvalidRequest, ModelNotFound
from hemiola.core.events import Failed
from hemiola.core.request import ProgramShare

from . import models
from .models import CONTEXT_LEN, chat, picture, prompt_ids, replaced
from .rig import Rig

SPAN = 13824
Cases = dict[str, Sequence[Any]]
"""Bad values by field."""

ANY_TEXT: Cases = {
    "max_tokens": (0, -1, "5", 1.5, True, 10**9),
    "temperature": (-0.1, 2.1, "hot", math.nan, True, 10**400),
    "top_p": (0, 1.5, -1, "x"),
    "top_k": (-2, 1.5, "x", 2**40),
    "seed": (1.5, 2**63, "x", False),
    "stop": (5, ["a", ""], [1], "", ["x"] * 17, {"a": 1}, "\ud800"),
    "stop_token_ids": ([-1], [10**6], ["a"], 5, "12", [1.5], [1] * 17),
    "n": (0, -1, 129, 1.5, "2", None),
    "logprobs": (-1, 21, True, "5"),
    "cache_salt": (5, None, b"x", "x" * 129),
    "ignore_eos": ("no", 1, None),
}
CHAT: Cases = {
    "messages": ([], 5, None, b"hello", {"role": "user", "content": "a"}),
    "enable_thinking": ("no", 1),
    "continue_final_message": ("no", 1),
    "tools": (5,),
    "tool_choice": ("always",),
    "template_options": (5,),
}
COMPLETE: Cases = {
    "prompt": ("", [], [-1], [10**6], [1.5], 5, None, ["a", 5], [[]], True, {"a": 1}),
    "add_special_tokens": ("no", 1),
}
ANY_MEDIA: Cases = {
    "prompt": (None, 5, ["a"], "", "a" * 32_001),
    "negative_prompt": (None, 5, ["a"], "a" * 32_001),
    "size": ("16", "16x", (16,), (16.5, 16), 5, "-16x16", (16, None), "16x16x16", ["a", "b"], f"{'9' * 5000}x16"),
    "num_inference_steps": (0, -1, 201, 1.5, "2"),
    "guidance_scale": (-1.0, 20.1, 1e38, math.nan, math.inf, "x", True, 10**400),
    "seed": (-1, 2**63, 1.5, "x"),
    "fps": (0, 121, 1.5),
    "pixel_type": ("int8", 8, None),
}
IMAGE: Cases = {
    "n": (0, 11, 1.5, "2", None),
    "num_frames": (5, 0, "x"),
}
VIDEO: Cases = {
    "n": (0, 2, 1.5),
    "num_frames": (2, 0, "x", 4 * 32 + 1),
}
SIZES = ((17, 16), (0, 16), (4096, 16), "12x16", (16, 17), (16, 0), "16x4096")
TERMS: Cases = {
    "priority": (5000, -5000, "x", 1.5),
    "service_class": ("fast", 5),
    "deadline_s": (-1.0, math.nan, "x"),
    "tenant": (5, None),
    "id": (5, "", None),
    "program": ("x", ProgramShare(id=""), ProgramShare(id="p", behind_s=-1.0), ProgramShare(id="p", behind_s=math.nan)),
}


def ask(engine: Engine, kind: str, options: dict[str, Any]) -> None:
    """A call that would be fine without the options."""
    if kind == "chat":
        engine.stream_chat(options.pop("messages", "hello"), model="chat", **{"max_tokens": 1, **options})
    elif kind == "complete":
        engine.stream_complete(options.pop("prompt", "hello"), model="chat", **{"max_tokens": 1, **options})
    elif kind == "image":
        engine.stream_image(options.pop("prompt", "a fox"), model="own", **{"size": (16, 16), **options})
    else:
        engine.stream_video(options.pop("prompt", "a fox"), model="clip", **{"size": (16, 16), **options})


def assert_refused(engine: Engine, kind: str, field: str, options: dict[str, Any]) -> InvalidRequest:
    """By an error that names the field, and says what is allowed; nothing is allocated and nothing runs."""
    arena = engine.composition.arena
    before, num_steps = (dict(arena.ledger.kinds), dict(arena.ledger.owners)), len(engine.trace)
    with pytest.raises(InvalidRequest) as caught:
        ask(engine, kind, options)
    error = caught.value
    assert error.param.split("[")[0].split(".")[0] == field or error.param == "tool_choice", error.param
    assert f"'{error.param}'" in error.message
    assert any(word in error.message for word in ("xpected", "llowed", "t least", "t most", "equired")), error.message
    assert (dict(arena.ledger.kinds), dict(arena.ledger.owners)) == before and len(engine.trace) == num_steps
    assert not engine._streams and not engine._texts._watched
    return error


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("chat", ANY_TEXT | CHAT),
        ("complete", ANY_TEXT | COMPLETE),
        ("image", ANY_MEDIA | IMAGE),
        ("video", ANY_MEDIA | VIDEO),
    ],
)
def test_every_bad_value_of_every_field_is_refused_by_name(engine: Engine, kind: str, cases: Cases) -> None:
    for field, values in cases.items():
        for value in values:
            assert_refused(engine, kind, field, {field: value})


def test_every_field_has_bad_values_above() -> None:
    def fields(call: Any) -> set[str]:
        return set(inspect.signature(call).parameters) - {"self", "terms", "param", "sampling", "prompts"}

    assert ANY_TEXT.keys() == fields(TextFront.requests)
    assert CHAT.keys() == fields(TextFront.chat_requests)
    assert COMPLETE.keys() == fields(TextFront.completion_requests)
    assert (ANY_MEDIA | IMAGE).keys() == (ANY_MEDIA | VIDEO).keys() == fields(MediaFront.requests)
    assert TERMS.keys() == {field.name for field in dataclasses.fields(CallTerms)}


@pytest.mark.parametrize("kind", ["image", "video"])
def test_sizes_that_the_model_cannot_make_are_refused_with_what_is_allowed(engine: Engine, kind: str) -> None:
    for size in SIZES:
        error = assert_refused(engine, kind, "size", {"size": size})
        assert (
            size if isinstance(size, str) else "{}x{}".format(*size)
        ) in error.message and "multiples of" in error.message


@pytest.mark.parametrize("kind", ["chat", "complete", "image", "video"])
def test_bad_terms_are_refused_by_name(engine: Engine, kind: str) -> None:
    for field, values in TERMS.items():
        for value in values:
            terms: dict[str, Any] = {field: value}
            assert_refused(engine, kind, field, {"terms": CallTerms(**terms)})


@pytest.mark.parametrize("kind", ["chat", "complete", "image", "video"])
def test_an_unknown_option_is_refused_by_name(engine: Engine, kind: str) -> None:
    with pytest.raises(InvalidRequest, match=r"temprature.*Allowed: "):
        ask(engine, kind, {"temprature": 1.0})


def test_models_are_named_or_the_only_ones_of_their_kind(engine: Engine) -> None:
    with pytest.raises(ModelNotFound, match=r"'x' does not exist\. Served: chat, image, own, clip, flux, reciter"):
        engine.stream_chat("hello", model="x")
    with pytest.raises(InvalidRequest, match="'own' makes no text") as caught:
        engine.stream_chat("hello", model="own")
    assert caught.value.param == "model"
    with pytest.raises(InvalidRequest, match=r"Name a text model with 'model'\. Served: chat, reciter"):
        engine.stream_chat("hello")
    with pytest.raises(InvalidRequest, match="'clip' makes no image"):
        engine.stream_image("a fox", model="clip")


def test_an_id_that_is_in_use_is_refused_and_the_first_is_unharmed(engine: Engine) -> None:
    """Its events went to the second call, and the first one waited for ever."""
    first = engine.stream_complete(prompt_ids(20), model="chat", max_tokens=300, terms=CallTerms(id="mine"))
    next(iter(first))
    for again in (engine.stream_complete, engine.stream_chat):
        with pytest.raises(InvalidRequest, match="'mine'") as caught:
            again("hello", model="chat", max_tokens=1, terms=CallTerms(id="mine"))
        assert caught.value.param == "id"
    with pytest.raises(InvalidRequest, match="'mine'"):
        engine.stream_image("a fox", model="own", terms=CallTerms(id="mine"))
    first.cancel()
    assert [type(event) for event in first][-1] is Failed
    engine.complete("hello", model="chat", max_tokens=1, terms=CallTerms(id="mine"))


def test_prompts_beyond_the_context_are_refused_with_numbers(engine: Engine) -> None:
    for count in (CONTEXT_LEN, CONTEXT_LEN + 100):
        with pytest.raises(ContextTooLong, match=f"maximum context length is {CONTEXT_LEN} tokens.*{count} in the"):
            engine.stream_complete(prompt_ids(count), model="chat")
    with pytest.raises(ContextTooLong):
        engine.stream_chat("long " * CONTEXT_LEN, model="chat")
    answer = engine.complete(prompt_ids(CONTEXT_LEN - 3), model="chat", ignore_eos=True, temperature=0.0)
    assert answer.usage.completion_tokens == 3 and answer.finish_reason == "length"


def refusal(rig: Rig, request: Any) -> Failed:
    """The failure that the request ends with at once, leaving memory as it was."""
    before = dict(rig.arena.ledger.owners)
    rig.submit(request)
    rig.scheduler._admission.admit()
    assert dict(rig.arena.ledger.owners) == before
    return rig.failed(request.id)


def test_requests_that_can_never_fit_are_refused_at_once_with_numbers() -> None:
    rig = Rig(memory_bytes=9 * SPAN)
    small = picture("small")
    rig.submit(small)
    rig.run_until(lambda: rig.num_steps_done("small") == 1)
    for request in (
        chat("text", prompt_ids(300), 100),
        picture("picture", size=(64, 64)),
        picture("clip", model="clip", size=(64, 64), num_frames=9),
    ):
        final = refusal(rig, request)
        assert final.code == "insufficient_memory"
        found = re.search(r" needs ([\d.]+) KiB, but ([\d.]+) KiB can be had at most\. ", final.message)
        assert found is not None and float(found[1]) > float(found[2]) == 9 * SPAN / 2**10
    rig.run_until(lambda: rig.scheduler.is_idle)
    rig.assert_as_alone(small)
    rig.assert_nothing_is_held()


def test_the_runners_do_not_rely_on_the_edge() -> None:
    rig = Rig()
    whole = prompt_ids(CONTEXT_LEN)
    assert refusal(rig, chat("long", whole)).code == "context_length_exceeded"
    assert "lie in [0, 264)" in refusal(rig, chat("ids", [3, 264])).message
    assert "'prompt'" in refusal(rig, chat("empty", [])).message
    assert "makes images" in refusal(rig, chat("kind", whole[:5], model="own")).message
    assert "makes text" in refusal(rig, replaced(picture("kind2"), model="chat")).message
    assert "'width'" in refusal(rig, replaced(picture("wide"), width=17)).message
    ids = {"text_encoder": tuple(prompt_ids(200))}
    assert refusal(rig, replaced(picture("prompt"), token_ids=ids)).code == "context_length_exceeded"
    assert "'token_ids'" in refusal(rig, replaced(picture("none"), token_ids={})).message
    rig.assert_nothing_is_held()


def test_what_is_too_large_for_the_arena_is_described_and_what_would_help() -> None:
    """It was told of a request's id, which nobody had chosen."""
    rig = Rig(memory_bytes=128 << 10, host_bytes=0, max_batch_tokens=32)
    for asked, said in (
        (picture("some-1", size=(64, 128)), ("A picture of 64x128 pixels by 'own' needs", "Lower 'size', or raise")),
        (picture("some-2", model="clip", size=(64, 64)), ("A clip of 5 frames of 64x64", "'size' or 'num_frames', or")),
        (chat("some-3", prompt_ids(40), 400), ("A prompt of 40 tokens with 400 more needs", "Lower 'max_tokens', or")),
    ):
        message = refusal(rig, asked).message
        assert asked.id not in message and all(part in message for part in said), message
        assert message.endswith("raise the engine's 'memory_bytes'.")


def test_a_prompt_that_the_shared_encoder_cannot_take_fails_that_picture_alone() -> None:
    rig = Rig()
    asked = picture("p", model="image")
    wrong = replaced(picture("wrong", model="image"), token_ids={"text_encoder": (3, 264)})
    rig.run(asked, wrong)
    failed = rig.failed("wrong")
    assert failed.code == "invalid_value" and "[0, 264)" in failed.message
    rig.assert_as_alone(asked)
    rig.assert_nothing_is_held()


def test_an_engine_that_cannot_fit_says_so_before_it_loads() -> None:
    with pytest.raises(CannotFit, match=r"Serving chat needs [\d.]+ MiB, but [\d.]+ MiB can be had at most") as caught:
        Engine(f"chat={models.folder('chat')}", memory_bytes=1 << 50)
    assert caught.value.bytes_needed > 1 << 50 > caught.value.bytes_available
    with pytest.raises(CannotFit, match=r"KV cache of 'chat' needs .* but 64\.0 KiB .*'memory_bytes' to 1 MiB"):
        Engine(f"chat={models.folder('chat')}", memory_bytes=64 << 10)


def test_a_refusal_by_the_engine_is_raised_to_the_caller() -> None:
    with Engine(f"own={models.folder('own')}", memory_bytes=128 << 10, threads=1) as small:
        with pytest.raises(HemiolaError, match=r"needs [\d.]+ KiB, but 128.0 KiB") as caught:
            small.image("a fox", size=(64, 64))
        assert caught.value.code == "insufficient_memory"
        assert len(small.image("a fox", size=(16, 16), num_inference_steps=1).pictures) == 1
