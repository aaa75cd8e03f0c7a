"""Numbers on the command line: read, held against their bounds, and refused with what is allowed."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from hemiola.core.bounds import Bounds, number_words, shown
from hemiola.core.config import BOUNDS

Number = TypeVar("Number", int, float)


def whole(within: Bounds | None = None) -> Callable[[str], int]:
    """Reads an option's whole number. Without bounds, whatever takes the number knows them."""
    return lambda text: _read(text, int, within)


def decimal(within: Bounds | None = None) -> Callable[[str], float]:
    """Reads an option's number, whole or not."""
    return lambda text: _read(text, float, within)


def whole_of(field: str) -> Callable[[str], int]:
    """Reads what becomes that field of an EngineConfig."""
    return whole(BOUNDS[field])


def mib_of(field: str) -> Callable[[str], int]:
    """Reads MiB of what becomes a field in bytes."""
    return whole(Bounds(1, int(BOUNDS[field].most) >> 20))


def decimal_of(field: str) -> Callable[[str], float]:
    """Reads what becomes that field of an EngineConfig."""
    return decimal(BOUNDS[field])


def _read(text: str, kind: type[Number], within: Bounds | None) -> Number:
    """
    Raises:
        ArgumentTypeError: argparse says before it which option is meant.
    """
    refusal = ArgumentTypeError(f"invalid value: {shown(text)}. Allowed: {number_words(kind, within)}.")
    try:
        value = kind(text)
    except ValueError:
        raise refusal from None
    if within is not None and not within.has(value):
        raise refusal
    return value
