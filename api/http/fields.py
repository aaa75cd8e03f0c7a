"""The fields of one request, read by name and type; what is read is checked, and what is left over is judged.

    prompt = fields.string("prompt", max_len=32_000)
    n = fields.integer("n", "num_outputs_per_prompt", smallest=1, largest=10)
    fields.refuse_rest(IMAGE_FIELDS, is_strict=False)

A field is honoured, declared harmless, or refused. `null` equals absence. Messages never repeat more than a few
characters of what was sent.
"""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hemiola.core.bounds import shown
from hemiola.core.errors import InvalidRequest

from ..front.terms import check_integer, check_number, check_text, wrong_type

log = logging.getLogger(__name__)

_INTEGER = re.compile(r"[+-]?\d{1,20}")
_WORDS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class FieldTable:
    """What becomes of every field that clients are known to send to one endpoint.

    Fields:
        honoured: read and followed; by name, what they do.
        harmless: accepted and without effect.
        unsupported: refused, unless they say what is so anyway; by name, the values that do.
        hints: what to use instead of an unsupported one, for the message.
    """

    honoured: Mapping[str, str]
    harmless: Collection[str]
    unsupported: Mapping[str, Collection[Any]]
    hints: Mapping[str, str]


class Fields:
    """The values of a body by name. In a form, they are strings."""

    def __init__(self, values: Mapping[str, Any], *, is_form: bool) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}
        self._is_form = is_form
        self._known: set[str] = set()

    @property
    def names_read(self) -> frozenset[str]:
        """The names that were looked for so far, whether they were there or not."""
        return frozenset(self._known)

    def given(self, *names: str) -> tuple[str, Any] | None:
        """The name that was used, of several for one thing, and its value.

        Raises:
            InvalidRequest: several were used, and say different things.
        """
        self._known.update(names)
        found = [(name, self._values[name]) for name in names if name in self._values]
        for name, value in found[1:]:
            if value != found[0][1]:
                raise InvalidRequest(name, f"Invalid '{name}': it contradicts '{found[0][0]}', which means the same.")
        return found[0] if found else None

    def string(self, *names: str, max_len: int) -> str | None:
        """Text of at most so many characters."""
        if (found := self.given(*names)) is None:
            return None
        name, value = found
        return check_text(name, value, max_len)

    def choice(self, *names: str, allowed: Collection[str]) -> str | None:
        """One of some words."""
        if (value := self.string(*names, max_len=100_000)) is None or value in allowed:
            return value
        words = ", ".join(f"'{word}'" for word in allowed)
        raise InvalidRequest(names[0], f"Invalid '{names[0]}': {shown(value)}. Allowed: {words}.")

    def integer(self, *names: str, smallest: int, largest: int) -> int | None:
        """A whole number within bounds."""
        if (found := self.given(*names)) is None:
            return None
        name, value = found
        if self._is_form and isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            value = int(value)
        return check_integer(name, value, smallest, largest)

    def number(self, *names: str, smallest: float, largest: float) -> float | None:
        """A finite number within bounds."""
        if (found := self.given(*names)) is None:
            return None
        name, value = found
        if self._is_form and isinstance(value, str):
            value = _to_float(value)
        return float(check_number(name, value, smallest, largest))

    def boolean(self, *names: str) -> bool | None:
        """True or false."""
        if (found := self.given(*names)) is None:
            return None
        name, value = found
        if self._is_form and isinstance(value, str):
            value = _WORDS.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise wrong_type(name, "a boolean", value)
        return value

    def refuse_rest(self, table: FieldTable, *, is_strict: bool) -> None:
        """Judges the fields that were not read.

        Raises:
            InvalidRequest: one is unsupported, or unknown while `is_strict`.
        """
        for name in sorted(self._values.keys() - self._known - set(table.harmless)):
            if name in table.unsupported:
                if not self._is_one_of(self._values[name], table.unsupported[name]):
                    hint = table.hints.get(name, "")
                    message = f"Unsupported parameter: '{name}' is not supported here.{' ' if hint else ''}{hint}"
                    raise InvalidRequest(name, message, "unsupported_parameter")
            elif is_strict:
                raise InvalidRequest(plain(name), f"Unknown parameter: '{plain(name)}'.", "unknown_parameter")
            else:
                log.debug("Ignored the unknown parameter '%s'.", plain(name))

    def _is_one_of(self, value: Any, allowed: Collection[Any]) -> bool:
        if self._is_form and isinstance(value, str):
            return value.strip().lower() in {"", *(str(each).lower() for each in allowed)}
        return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed)


def plain(name: str) -> str:
    """A name that somebody else chose, fit for a message: short, and of ordinary characters."""
    return name[:64].encode("ascii", "backslashreplace").decode()


def _to_float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
