"""Checks of settings by their fields' types and bounds: the error names the field, the value and what is allowed.

Knows no particular setting. Whoever reads settings as text (the command line) has the same bounds and the same words.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Rational, Real
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .errors import InvalidRequest

_SHOWN_LEN = 60
_NAMES = {str: "a string", bool: "True or False", int: "a whole number", float: "a number", NoneType: "None"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """From `least` to `most`; where `is_open`, `least` itself is left out."""

    least: float
    most: float
    is_open: bool = False

    def has(self, value: float) -> bool:
        """Whether it lies within. NaN lies nowhere."""
        return (self.least < value if self.is_open else self.least <= value) and value <= self.most

    @property
    def words(self) -> str:
        if self.is_open:
            return f"above {self.least:,} and at most {self.most:,}"
        return f"from {self.least:,} to {self.most:,}"


def check_fields(settings: Any, bounds: Mapping[str, Bounds]) -> None:
    """Checks every field of a dataclass against its type and, where it is a number, its bounds.

    Numbers of other libraries become Python's own.

    Raises:
        InvalidRequest: a value is of another type, out of bounds, or no number at all; the first such field.
    """
    for field, kinds in _kinds_of(type(settings)).items():
        given, within = getattr(settings, field), bounds.get(field)
        value = plain(given)
        if not any(_is(value, kind, within) for kind in kinds):
            allowed = " or ".join(_words(kind, within) for kind in kinds)
            raise InvalidRequest(field, f"Invalid '{field}': {shown(value)}. Allowed: {allowed}.")
        if value is not given:
            object.__setattr__(settings, field, value)  # settings are frozen


def number_fields(settings: type) -> set[str]:
    """The fields that are numbers, and so have bounds."""
    return {field for field, kinds in _kinds_of(settings).items() if {int, float}.intersection(kinds)}


def plain(value: Any) -> Any:
    """A number of another library, such as NumPy's, as Python's own; everything else as it is."""
    if type(value) in (int, float, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, Rational) else value


def shown(value: object) -> str:
    """The value for an error: as Python writes it, cut where that is long."""
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN_LEN:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN_LEN else f"{text[:_SHOWN_LEN]}..."


def _kinds_of(settings: type) -> dict[str, tuple[Any, ...]]:
    """What each field may be: `int | None` is (int, NoneType)."""
    hints = get_type_hints(settings)
    return {field: get_args(hint) if isinstance(hint, UnionType) else (hint,) for field, hint in hints.items()}


def _is(value: Any, kind: Any, within: Bounds | None) -> bool:
    made_of = get_origin(kind)
    if made_of is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if made_of is tuple:  # of any length
        return isinstance(value, tuple) and all(isinstance(each, get_args(kind)[0]) for each in value)
    if made_of is not None:
        return isinstance(value, made_of)
    if kind not in (int, float):
        return isinstance(value, kind)
    numbers = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, numbers):
        return False
    return within.has(value) if within is not None else math.isfinite(value)


def _words(kind: Any, within: Bounds | None) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(repr(word) for word in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a tuple, each of it {_NAMES[get_args(kind)[0]]}"
    if kind in (int, float):
        return number_words(kind, within)
    return _NAMES.get(kind) or f"a {(get_origin(kind) or kind).__name__}"


def number_words(kind: type[int] | type[float], within: Bounds | None) -> str:
    """What is allowed: `a whole number from 1 to 1,024`."""
    return _NAMES[kind] if within is None else f"{_NAMES[kind]} {within.words}"
