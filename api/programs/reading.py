"""From an answer's text to a value, checked: what gen_int, gen_float and gen_json do. Knows no engine."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from hemiola.core.errors import HemiolaError

Reader = Callable[[str], Any]

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_FENCE = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_MAX_SHOWN = 120


class AnswerUnfit(HemiolaError):
    """What the model wrote is not what was asked for."""

    code = "answer_unfit"

    def __init__(self, wanted: str, text: str, why: object = None) -> None:
        shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
        reason = f" ({why})" if why else ""
        super().__init__(f"Expected {wanted}, but the answer is {shown!r}{reason}.")


@dataclass(frozen=True, slots=True)
class ReadInt:
    """A reader of the one whole number in a text."""

    minimum: int | None = None
    maximum: int | None = None

    def __call__(self, text: str) -> int:
        wanted = f"exactly one number, whole{_bounds(self.minimum, self.maximum)}"
        digits = _only_number(text, wanted)
        number = int(digits) if digits.lstrip("+-").isdecimal() else float(digits)
        if number != int(number) or not _is_within(number, self.minimum, self.maximum):
            raise AnswerUnfit(wanted, text)
        return int(number)


@dataclass(frozen=True, slots=True)
class ReadFloat:
    """A reader of the one number in a text."""

    minimum: float | None = None
    maximum: float | None = None

    def __call__(self, text: str) -> float:
        wanted = f"exactly one number{_bounds(self.minimum, self.maximum)}"
        number = float(_only_number(text, wanted))
        if not _is_within(number, self.minimum, self.maximum):
            raise AnswerUnfit(wanted, text)
        return number


@dataclass(frozen=True, slots=True)
class ReadJson:
    """A reader of a text that is a JSON document, alone or in a fence, of a type if one is given."""

    into: Any = None

    def __call__(self, text: str) -> Any:
        fenced = _FENCE.match(text)
        try:
            value = msgspec.json.decode(fenced[1] if fenced else text)
            return value if self.into is None else _converted(value, self.into)
        except (msgspec.MsgspecError, ValueError) as error:  # the latter is pydantic's
            name = getattr(self.into, "__name__", str(self.into))
            wanted = "a JSON document" + ("" if self.into is None else f" that fits {name}")
            raise AnswerUnfit(wanted, text, error) from error


def _converted(value: Any, into: Any) -> Any:
    validate = getattr(into, "model_validate", None)  # pydantic
    return validate(value) if validate is not None else msgspec.convert(value, into)


def _only_number(text: str, wanted: str) -> str:
    numbers = _NUMBER.findall(text)
    if len(numbers) != 1:
        raise AnswerUnfit(wanted, text)
    only: str = numbers[0]
    return only.replace(",", "")


def _is_within(number: float, minimum: float | None, maximum: float | None) -> bool:
    return (minimum is None or number >= minimum) and (maximum is None or number <= maximum)


def _bounds(minimum: float | None, maximum: float | None) -> str:
    above = "" if minimum is None else f", >= {minimum}"
    return above + ("" if maximum is None else f", <= {maximum}")
