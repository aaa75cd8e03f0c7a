"""What a program holds before it is there: variables that are waited for when they are used, and only then."""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hemiola.core.errors import InvalidRequest

from ..results import ImageResult, Picture, VideoResult
from .graph import Node, distinct


class Variable:
    """A value that nodes will give. Passing it on never waits; using it does.

    `str(x)`, `f"{x}"`, `int(x)`, `x == y`, `len(x)`, `for each in x`, `x.image` and `x.value` wait in a thread; `await
    x` waits in a coroutine. `x["key"]`, `x[0]`, `"..." + x` and `x + "..."` give another variable at once.

    Args:
        nodes: those whose results are needed.
        read: the value, once all of these have ended well.
    """

    def __init__(self, nodes: Sequence[Node], read: Callable[[], Any]) -> None:
        self.nodes = distinct(nodes)
        self.read = read

    @property
    def value(self) -> Any:
        """The value itself.

        Raises:
            NodeFailed: a node that it needs failed.
            RequestAborted: the program was cancelled.
        """
        for node in self.nodes:
            node.wait()
        return self.read()

    @property
    def is_there(self) -> bool:
        """Whether using it would not wait."""
        return all(node.result.done() for node in self.nodes)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._arrived().__await__()

    async def _arrived(self) -> Any:
        for node in self.nodes:
            await node.arrived()
        return self.read()

    # Without waiting

    def __getitem__(self, key: Any) -> "Variable":
        return Variable(self.nodes, Item(self, key))

    def __add__(self, other: "str | Variable") -> "Variable":
        return joined(self, other)

    def __radd__(self, other: "str | Variable") -> "Variable":
        return joined(other, self)

    # Waiting

    def __str__(self) -> str:
        return as_text(self.value)

    def __format__(self, spec: str) -> str:
        value = self.value
        return format(value, spec) if spec else as_text(value)

    def __repr__(self) -> str:
        return repr(self.read()) if self.is_there else f"<pending {', '.join(node.name for node in self.nodes)}>"

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __contains__(self, item: object) -> bool:
        return item in self.value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Variable) else other))

    __hash__ = None  # type: ignore[assignment]  # equality waits for the value: no key of a mapping

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.value, name)


Text = str | Variable


def as_text(value: Any) -> str:
    """A value as a prompt has it: text as it is, objects and arrays as JSON, the rest as Python prints it.

    Raises:
        InvalidRequest: it is, or has in it, a picture or clip, or something else that JSON has no word for.
    """
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_no_text)
    return str(_no_text(value) if isinstance(value, ImageResult | Picture | VideoResult) else value)


def _no_text(value: Any) -> NoReturn:
    if isinstance(value, ImageResult | Picture | VideoResult):
        kind = "clip" if isinstance(value, VideoResult) else "picture"
        text = f"A {kind} is no text, and no served model sees {kind}s. Allowed: texts and what JSON can say."
        raise InvalidRequest("prompt", text, "unsupported_parameter")
    raise InvalidRequest("prompt", f"A {type(value).__name__} cannot be written as text or JSON.", "invalid_type")


def text_of(part: Text) -> str:
    """Of a part whose nodes have ended well."""
    return part if isinstance(part, str) else as_text(part.read())


def nodes_of(*parts: Text) -> tuple[Node, ...]:
    """All that the parts wait for."""
    return distinct(node for part in parts if isinstance(part, Variable) for node in part.nodes)


def joined(*parts: Text) -> Variable:
    """Texts and variables as one text."""
    return Variable(nodes_of(*parts), Joined(parts))


def gathered(variables: Sequence[Variable]) -> Variable:
    """Variables as one list."""
    return Variable(nodes_of(*variables), Gathered(tuple(variables)))


# How variables are read: said as values, so that a program can be written down before it runs.


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """`of[key]`"""

    of: Variable
    key: Any

    def __call__(self) -> Any:
        return self.of.read()[self.key]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """One text."""

    parts: tuple[Text, ...]

    def __call__(self) -> str:
        return "".join(map(text_of, self.parts))


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """One list."""

    variables: tuple[Variable, ...]

    def __call__(self) -> list[Any]:
        return [each.read() for each in self.variables]
