"""What JSON has no word for, or one that no UTF-8 holds: finds the field that it is in. Knows no fields by name."""

import math
from collections.abc import Mapping
from typing import Any

from hemiola.core.bounds import plain

from .terms import check_text, wrong_type


def check_words(fields: Mapping[Any, Any], within: str = "") -> None:
    """Looks at all that is in an object, however deep.

    Args:
        within: the name of the field that holds the object, with a dot.

    Raises:
        InvalidRequest: names the first field that cannot be said in JSON, and why.
        RecursionError: something is within itself.
    """
    for name, value in fields.items():
        if not isinstance(name, str):
            raise wrong_type(within.rstrip(".") or "request", "names of fields as strings", name)
        check_text(f"{within}{name}".encode("ascii", "backslashreplace").decode(), name)
        _check(f"{within}{name}", value)


def _check(param: str, given: Any) -> None:
    value = plain(given)
    if isinstance(value, str):
        check_text(param, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise wrong_type(param, "a finite number", value)
    elif isinstance(value, dict):
        check_words(value, f"{param}.")
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            _check(f"{param}[{i}]", each)
    elif not isinstance(value, int | None):
        raise wrong_type(param, "a string, number, boolean, array or object", value)
