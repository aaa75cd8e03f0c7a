"""Checks of what a program's line gives: an error there is better than one where its value is used."""

import inspect
from math import isnan
from pathlib import Path
from typing import Any

from hemiola.core.bounds import plain
from hemiola.core.errors import InvalidRequest


def check_name(name: Any) -> None:
    """Of a variable.

    Raises:
        InvalidRequest: it is none.
    """
    if not isinstance(name, str) or not name:
        raise InvalidRequest("name", f"Invalid name of a variable: {name!r}. Allowed: a string that is not empty.")


def check_whole(field: str, of: str, value: Any, least: int) -> int:
    """Of how many, or how often: the value as an int.

    Raises:
        InvalidRequest: it is no whole number, or below `least`.
    """
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        text = f"Invalid '{field}' of {of}: {number!r}. Allowed: a whole number, {least} or more."
        raise InvalidRequest(field, text)
    return number


def check_bounds(name: str, minimum: Any, maximum: Any) -> None:
    """Of a number that a model is to write; None where there is none.

    Raises:
        InvalidRequest: one is no number, or nothing lies between them.
    """
    for field, value in (("minimum", minimum), ("maximum", maximum)):
        if value is not None and (not isinstance(value, int | float) or isnan(value)):
            raise InvalidRequest(field, f"Invalid '{field}' of '{name}': {value!r}. Allowed: a number.")
    if minimum is not None and maximum is not None and minimum > maximum:
        text = f"Invalid 'maximum' of '{name}': {maximum!r}. Allowed: not below the minimum, which is {minimum!r}."
        raise InvalidRequest("maximum", text)


def check_seconds(field: str, value: Any) -> float:
    """Of a time limit: the value as a number of Python's.

    Raises:
        InvalidRequest: it is no number, or below 0.
    """
    number = plain(value)
    if not isinstance(number, int | float) or isinstance(number, bool) or not number >= 0:
        raise InvalidRequest(field, f"Invalid '{field}': {number!r}. Allowed: seconds, 0 or more.")
    return number


def check_function(function: Any) -> None:
    """Of what is to become a program.

    Raises:
        InvalidRequest: it cannot be run as one.
    """
    if not callable(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        text = f"Invalid program: {function!r}. Allowed: functions and coroutine functions, without `yield`."
        raise InvalidRequest("program", text)


def path_of(results: Any) -> Path:
    """Of a batch's file.

    Raises:
        InvalidRequest: it is none.
    """
    if not isinstance(results, str | Path) or not str(results):
        raise InvalidRequest("results", f"Invalid 'results': {results!r}. Allowed: the path of a file of JSON lines.")
    return Path(results)
