"""What a program may ask for. Expressions are plain frozen values: nothing happens until one is added to a state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hemiola.core.bounds import plain
from hemiola.core.errors import InvalidRequest

from ..front.terms import check_text
from .arguments import check_bounds, check_name, check_whole
from .reading import Reader, ReadFloat, ReadInt, ReadJson
from .scoring import SCORINGS, Scoring
from .tools import Tool, checked_tools
from .values import Text


@dataclass(frozen=True, slots=True)
class Gen:
    """Text to be written by the model.

    Fields:
        options: of the call, besides `n`.
        tools: functions that the model may call, `max_rounds` times at most.
        read: from the text to the variable's value; what it refuses is asked for again, `retries` times at most.
    """

    name: str
    options: Mapping[str, Any]
    n: int = 1
    tools: tuple[Tool, ...] = ()
    max_rounds: int = 0
    read: Reader | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Media:
    """A picture or clip to be made. It adds nothing to the text."""

    kind: Literal["image", "video"]
    name: str
    prompt: Text
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A whole turn of a conversation."""

    role: str
    parts: tuple["Text | Gen | Select", ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Select:
    """One of several texts, as the model likes it best."""

    name: str
    choices: tuple[str, ...]
    scoring: Scoring = "mean"
    model: str | None = None


Expression = Gen | Select | Media | Spoken


# Who speaks


def system(*parts: Text) -> Spoken:
    """Tells the model what it is."""
    return _spoken("system", parts, Text)


def user(*parts: Text) -> Spoken:
    """Says something to the model."""
    return _spoken("user", parts, Text)


def assistant(*parts: Text | Gen | Select) -> Spoken:
    """The model's turn: texts put into its mouth, `gen`s and `select`s, in order."""
    return _spoken("assistant", parts, Text | Gen | Select)


def _spoken(role: str, parts: tuple[Any, ...], allowed: Any) -> Spoken:
    for part in parts:
        if isinstance(part, Gen | Select) and allowed is Text:
            raise InvalidRequest(part.name, f"'{part.name}': the model does not write what the {role} says.")
        if not isinstance(part, allowed):
            text = (
                f"Invalid part of {role}(...), of type {type(part).__name__}. Allowed: strings and variables of text."
            )
            raise InvalidRequest(role, text, "invalid_type")
    return Spoken(role, parts)


# Text


def gen(
    name: str,
    *,
    max_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    n: int = 1,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    model: str | None = None,
    enable_thinking: bool = False,
    tools: Sequence[Tool] = (),
    max_rounds: int = 4,
    regex: str | None = None,
    json_schema: Any = None,
) -> Gen:
    """Text written by the model; what is left out is as the model's generation config says.

    Args:
        n: more than one makes the variable a list; `s.keep(name, index)` says with which to go on.
        tools: functions that the model may call; the program runs them and tells it what they gave.
        max_rounds: how often it may call before it has to answer; a call beyond fails the node.
        regex, json_schema (also a pydantic model): refused; nothing constrains what a model may write. `gen_json`
            checks afterwards.

    Raises:
        InvalidRequest: names the option.
    """
    for option, value in (("regex", regex), ("json_schema", json_schema)):
        if value is not None:
            text = f"'{option}' of '{name}' is not supported: nothing constrains what a model may write. Instead, "
            text += "gen_int, gen_float and gen_json(..., into=a type or pydantic model) check what it wrote."
            raise InvalidRequest(option, text, "unsupported_parameter")
    check_name(name)
    n = check_whole("n", f"'{name}'", n, 1)
    max_rounds = check_whole("max_rounds", f"'{name}'", max_rounds, 1)
    offered = checked_tools(name, tools)
    if offered and n != 1:
        raise InvalidRequest("n", f"Invalid 'n' of '{name}': {n}. Allowed: 1, where there are tools.")
    given = {
        "max_tokens": max_tokens,
        "stop": stop,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "model": model,
        "enable_thinking": enable_thinking or None,
    }
    options = {key: plain(value) for key, value in given.items() if value is not None}
    return Gen(name, options, n, offered, max_rounds)


def select(name: str, choices: Sequence[str], *, scoring: Scoring = "mean", model: str | None = None) -> Select:
    """The choice that the model finds likeliest, computed exactly from the probabilities of its tokens.

    Args:
        scoring: "mean" is per token, so that long choices are not at a disadvantage; "sum" is of the whole choice;
            "greedy" takes the likeliest next token that leads to a choice, token by token; "unconditional" is how much
            likelier per token the choice is here than without any prompt, so that common words are no advantage.

    Raises:
        InvalidRequest: names the argument.
    """
    check_name(name)
    given = tuple(choices) if isinstance(choices, Iterable) and not isinstance(choices, str) else ()
    if not given or not all(isinstance(choice, str) and choice for choice in given):
        text = f"Invalid 'choices' of '{name}': {choices!r:.80}. Allowed: at least one string, none empty."
        raise InvalidRequest("choices", text)
    for choice in given:
        check_text("choices", choice)
    if not isinstance(scoring, str) or scoring not in SCORINGS:
        text = f"Invalid 'scoring' of '{name}': {scoring!r}. Allowed: {', '.join(SCORINGS)}."
        raise InvalidRequest("scoring", text)
    return Select(name, given, scoring, model)


def gen_int(
    name: str, *, minimum: int | None = None, maximum: int | None = None, retries: int = 0, **options: Any
) -> Gen:
    """An answer with exactly one number in it, which is whole and within the bounds. Options: see `gen`."""
    check_bounds(name, minimum, maximum)
    return _read(name, ReadInt(minimum, maximum), retries, options)


def gen_float(
    name: str, *, minimum: float | None = None, maximum: float | None = None, retries: int = 0, **options: Any
) -> Gen:
    """An answer with exactly one number in it, within the bounds. Options: see `gen`."""
    check_bounds(name, minimum, maximum)
    return _read(name, ReadFloat(minimum, maximum), retries, options)


def gen_json(name: str, *, into: Any = None, retries: int = 0, **options: Any) -> Gen:
    """An answer that is a JSON document, alone or in a fence. Options: see `gen`.

    Args:
        into: a type that it must fit: a dataclass, TypedDict, msgspec Struct, `list[int]`, ... or a pydantic model.
        retries: how often an answer that does not is asked for again, each time with the next seed.
    """
    return _read(name, ReadJson(into), retries, options)


def _read(name: str, read: Callable[[str], Any], retries: int, options: Mapping[str, Any]) -> Gen:
    asked = gen(name, **options)
    if asked.n != 1:
        raise InvalidRequest("n", f"Invalid 'n' of '{name}': {asked.n}. One answer is read at a time. Allowed: 1.")
    retries = check_whole("retries", f"'{name}'", retries, 0)
    if retries and asked.options.get("temperature") == 0:
        text = f"Invalid 'retries' of '{name}': {retries}. Allowed: 0, as temperature is 0: the same answer would come"
        raise InvalidRequest("retries", text + " again.")
    return replace(asked, read=read, retries=retries)


# Pictures and clips

_NAMES = {"num_inference_steps": "steps", "guidance_scale": "guidance", "num_frames": "frames"}


def as_written(error: InvalidRequest) -> InvalidRequest:
    """An engine's error with the fields called as they are here."""
    name = _NAMES.get(error.param)
    if name is None:
        return error
    return InvalidRequest(name, error.message.replace(f"'{error.param}'", f"'{name}'"), error.code)


def gen_image(
    name: str,
    prompt: Text,
    *,
    negative_prompt: str | None = None,
    size: str | tuple[int, int] | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    seed: int | None = None,
    n: int | None = None,
    model: str | None = None,
) -> Media:
    """Pictures: the variable is an ImageResult. What is left out is as the model's defaults say."""
    return _media("image", name, prompt, negative_prompt, size, steps, guidance, seed, model, n=n)


def gen_video(
    name: str,
    prompt: Text,
    *,
    negative_prompt: str | None = None,
    size: str | tuple[int, int] | None = None,
    frames: int | None = None,
    fps: int | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    seed: int | None = None,
    model: str | None = None,
) -> Media:
    """A clip: the variable is a VideoResult. What is left out is as the model's defaults say."""
    more = {"num_frames": frames, "fps": fps}
    return _media("video", name, prompt, negative_prompt, size, steps, guidance, seed, model, **more)


def _media(
    kind: Literal["image", "video"],
    name: str,
    prompt: Text,
    negative_prompt: str | None,
    size: str | tuple[int, int] | None,
    steps: int | None,
    guidance: float | None,
    seed: int | None,
    model: str | None,
    **more: int | None,
) -> Media:
    check_name(name)
    if not isinstance(prompt, Text):
        text = (
            f"Invalid 'prompt' of '{name}', of type {type(prompt).__name__}. Allowed: a string or a variable of text."
        )
        raise InvalidRequest("prompt", text, "invalid_type")
    given = {
        "negative_prompt": negative_prompt,
        "size": tuple(map(plain, size)) if isinstance(size, tuple) else size,
        "num_inference_steps": steps,
        "guidance_scale": guidance,
        "seed": seed,
        "model": model,
        **more,
    }
    return Media(kind, name, prompt, {key: plain(value) for key, value in given.items() if value is not None})
