"""A program written down: typed JSON without code. Which steps there are, and what each may say; knows no engine.

    {"version": 1, "steps": [
      {"type": "turn", "role": "user", "parts": "Come up with a scene about a fox."},
      {"type": "turn", "role": "assistant", "parts": [{"type": "gen", "name": "scene", "max_tokens": 60}]},
      {"type": "fork", "n": 2},
      {"type": "image", "branch": "0", "name": "picture", "prompt": [{"type": "value", "node": 0}]}]}

Steps are done in order, and none of them waits. What is generated, the *nodes*, is counted from 0 in the order of the
steps; a text may have in it what an earlier node will give. Branches are called as forks are: "" is the program itself,
"0" its first fork, "0.1" the second fork of that.
"""

from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from hemiola.core.errors import InvalidRequest

from .scoring import Scoring

VERSION = 1
MAX_STEPS = 1024
MAX_NODES = 256
MAX_BRANCHES = 256
MAX_REFERENCES = 4096
"""To nodes, in all texts of a program together."""
MAX_BYTES = 1_000_000
"""Of all of it, as JSON."""
MAX_NAME_LEN = 128
MAX_RETRIES = 16


class Value(Struct, frozen=True, tag="value", forbid_unknown_fields=True, omit_defaults=True):
    """What an earlier node gave; with a path, a part of it: keys of objects, places in arrays."""

    node: int
    path: tuple[str | int, ...] = ()


class Said(Struct, frozen=True, tag="said", forbid_unknown_fields=True, omit_defaults=True):
    """What an earlier node added to its turn, as a reader sees it; `choice` says which of several answers."""

    node: int
    choice: "int | Reference | None" = None


class Values(Struct, frozen=True, tag="list", forbid_unknown_fields=True):
    """Several values as one array."""

    items: "tuple[Reference, ...]"


class Texts(Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    """Several pieces as one text."""

    pieces: "tuple[Piece, ...]"


Reference = Value | Said | Values | Texts
Piece = str | Value | Said | Values | Texts
Pieces = str | tuple[Piece, ...]


class GenStep(Struct, frozen=True, tag="gen", forbid_unknown_fields=True, omit_defaults=True):
    """Text that the model writes. `read`: the answer has to be that, and is asked for again so many times if not."""

    name: str
    max_tokens: int | None = None
    stop: str | tuple[str, ...] | None = None
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    model: str | None = None
    enable_thinking: bool = False
    read: Literal["text", "int", "float", "json"] = "text"
    minimum: float | None = None
    maximum: float | None = None
    retries: int = 0


class SelectStep(Struct, frozen=True, tag="select", forbid_unknown_fields=True, omit_defaults=True):
    """The choice that the model likes best."""

    name: str
    choices: tuple[str, ...]
    scoring: Scoring = "mean"
    model: str | None = None


Part = str | Value | Said | Values | Texts | GenStep | SelectStep


class TurnStep(Struct, frozen=True, tag="turn", forbid_unknown_fields=True, omit_defaults=True):
    """What somebody says. Without a role, it goes on in the branch's last turn; if there is none, it is plain text."""

    branch: str = ""
    role: Literal["", "system", "user", "assistant"] = ""
    parts: str | tuple[Part, ...] = ()


class ImageStep(Struct, frozen=True, tag="image", forbid_unknown_fields=True, omit_defaults=True):
    """Pictures."""

    name: str
    prompt: Pieces
    branch: str = ""
    negative_prompt: str | None = None
    size: str | tuple[int, int] | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int | None = None
    n: int | None = None
    model: str | None = None


class VideoStep(Struct, frozen=True, tag="video", forbid_unknown_fields=True, omit_defaults=True):
    """A clip."""

    name: str
    prompt: Pieces
    branch: str = ""
    negative_prompt: str | None = None
    size: str | tuple[int, int] | None = None
    frames: int | None = None
    fps: int | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int | None = None
    model: str | None = None


class ForkStep(Struct, frozen=True, tag="fork", forbid_unknown_fields=True, omit_defaults=True):
    """Branches that go on from here."""

    branch: str = ""
    n: int = 1


class JoinStep(Struct, frozen=True, tag="join", forbid_unknown_fields=True, omit_defaults=True):
    """The branches' variables become lists of the branch that they were forked from; see `Forks.join`."""

    branches: tuple[str, ...]
    how: Literal["gather", "concatenate"] = "gather"


class KeepStep(Struct, frozen=True, tag="keep", forbid_unknown_fields=True, omit_defaults=True):
    """The branch goes on with one of several answers."""

    name: str
    index: int | Value | Said | Values | Texts
    branch: str = ""


class LetStep(Struct, frozen=True, tag="let", forbid_unknown_fields=True, omit_defaults=True):
    """Gives a value a name in the branch."""

    name: str
    value: Reference
    branch: str = ""


Step = TurnStep | ImageStep | VideoStep | ForkStep | JoinStep | KeepStep | LetStep
STEP_TYPES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Step))


class ProgramGraph(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. `Program.graph(...)` writes it down, `POST /v1/programs` runs it."""

    version: int
    steps: tuple[Step, ...]

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def read_graph(given: Any, param: str = "program") -> ProgramGraph:
    """From JSON's objects, with types, version and sizes checked.

    Raises:
        InvalidRequest: names the field, the value and what is allowed.
    """
    version = given.get("version") if isinstance(given, dict) else None
    if isinstance(version, int) and version != VERSION:
        text = f"Invalid '{param}.version': {version!r:.40}. Allowed: {VERSION}."
        raise InvalidRequest(f"{param}.version", text)
    try:
        graph = msgspec.convert(given, ProgramGraph)
    except msgspec.ValidationError as error:
        raise _named(param, str(error)) from error
    except RecursionError as error:
        raise InvalidRequest(param, f"Invalid '{param}': it is nested too deeply.") from error
    _check_count(f"{param}.steps", len(graph.steps), MAX_STEPS)
    num_bytes = len(msgspec.json.encode(graph))
    if num_bytes > MAX_BYTES:
        text = f"Invalid '{param}': {num_bytes} bytes of JSON. Allowed: {MAX_BYTES} at most."
        raise InvalidRequest(param, text, "string_above_max_length")
    return graph


def _check_count(param: str, count: int, largest: int) -> None:
    if not 1 <= count <= largest:
        code = "empty_array" if count < 1 else "array_above_max_length"
        raise InvalidRequest(param, f"Invalid '{param}': {count} entries. Allowed: 1 to {largest}.", code)


def _named(param: str, message: str) -> InvalidRequest:
    """msgspec says "Expected `int`, got `str` - at `$.steps[0].n`"."""
    what, _, where = message.partition(" - at `$")
    name = param + where.rstrip("`")
    if name.endswith(".type"):
        what += f". Allowed: {', '.join(STEP_TYPES)} as steps; value, said, list, text in texts; gen, select in turns"
    code = "missing_required_parameter" if "missing required field" in what else "invalid_type"
    return InvalidRequest(name, f"Invalid '{name}': {what}.", code)
