"""What every call may say besides what it asks for, and checks that all fronts share."""

import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any

from hemiola.core.bounds import plain, shown
from hemiola.core.errors import InvalidRequest
from hemiola.core.request import ProgramShare
from hemiola.core.service import service_class

MAX_ID_LEN = 256
# Of a completion that does not say how long it may be, as in OpenAI's API; None says: as long as the context has room.
COMPLETION_MAX_TOKENS = 16


def engine_clock() -> float:
    """Seconds; the one clock that stamps arrivals and runs the scheduler (monotonic, the same in all processes)."""
    return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """Terms of one call, which becomes one request or several. See `core.request.Terms` for the fields.

    `program` is said by programs that run, of their nodes.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    tenant: str = "default"
    service_class: str | None = None
    priority: int = 0
    deadline_s: float | None = None
    program: ProgramShare | None = None

    def fields(self, model: str, index: int, n: int) -> dict[str, Any]:
        """The Terms of request `index` of `n`.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        if not check_text("id", self.id, MAX_ID_LEN):
            raise InvalidRequest("id", "Invalid 'id': empty string. At least one character is needed.", "empty_string")
        given: dict[str, Any] = {
            "id": self.id if n == 1 else f"{self.id}-{index}",
            "model": model,
            "tenant": check_text("tenant", self.tenant),
            "priority": check_integer("priority", self.priority, -1000, 1000),
            "arrival_s": engine_clock(),
            "deadline_s": None if self.deadline_s is None else check_number("deadline_s", self.deadline_s, 0.0),
            "group": self.id if n > 1 else None,
            "index": index,
            "program": None if self.program is None else _check_program(self.program),
        }
        if self.service_class is not None:
            given["service_class"] = service_class(check_text("service_class", self.service_class)).name
        return given


def _check_program(program: ProgramShare) -> ProgramShare:
    if not isinstance(program, ProgramShare):
        raise wrong_type("program", "a ProgramShare", program)
    if not check_text("program", program.id, MAX_ID_LEN):
        raise InvalidRequest("program", "Invalid 'program': it has no id. At least one character is needed.")
    check_number("program", program.behind_s, 0.0)
    return program


_LARGEST = 2**1023  # just below infinity; integers are unbounded in JSON, but not as numbers of a machine


def check_integer(param: str, value: Any, smallest: int, largest: int) -> int:
    """The value as an int, if it is an integer within the bounds.

    Raises:
        InvalidRequest: it is not.
    """
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise wrong_type(param, "an integer", number)
    _check_bounds(param, number, smallest, largest, "integer")
    return number


def check_number(param: str, value: Any, smallest: float = -math.inf, largest: float = math.inf) -> float:
    """The value, if it is a finite number within the bounds.

    Raises:
        InvalidRequest: it is not.
    """
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise wrong_type(param, "a finite number", number)
    if isinstance(number, float) and not math.isfinite(number):
        raise wrong_type(param, "a finite number", number)
    _check_bounds(param, number, smallest, largest, "decimal")
    if not -_LARGEST < number < _LARGEST:
        text = f"Invalid '{param}': {shown(number)} is beyond what a floating-point number can hold."
        raise InvalidRequest(param, text, "invalid_value")
    return number


def check_text(param: str, value: Any, max_len: int | None = None) -> str:
    """The value, if it is a string, and not too long.

    Raises:
        InvalidRequest: it is not.
    """
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if max_len is not None and len(value) > max_len:
        text = f"Invalid '{param}': string too long. Expected {max_len} characters at most, but got {len(value)}."
        raise InvalidRequest(param, text, "string_above_max_length")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        text = f"Invalid '{param}': not valid Unicode, a lone surrogate at character {error.start}. "
        raise InvalidRequest(param, f"{text}Allowed: whole characters.") from error
    return value


# What options are called in programs, on the command line and by other libraries.
_OTHER_NAMES = {
    "steps": "num_inference_steps",
    "guidance": "guidance_scale",
    "frames": "num_frames",
    "negative": "negative_prompt",
    "width": "size",
    "height": "size",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
}


def check_options(
    options: Iterable[str], *takers: Callable[..., Any], without: Collection[str] = frozenset({"param"})
) -> None:
    """Refuses options that none of the functions takes by name, and those in `without`.

    Raises:
        InvalidRequest: names the first of them, the one that is likely meant, and all.
    """
    parameters = [p for taker in takers for p in signature(taker).parameters.values()]
    known = sorted({p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY}.difference(without))
    for name in options:
        if name not in known:
            meant = _OTHER_NAMES.get(name)
            near = [meant] if meant in known else get_close_matches(name, known, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            text = f"There is no option '{name}'.{hint} Allowed: {', '.join(known)}."
            raise InvalidRequest(name, text, "unknown_parameter")


def check_flag(param: str, value: Any) -> bool:
    """The value, if it is true or false.

    Raises:
        InvalidRequest: it is not; nothing else is taken for either.
    """
    if not isinstance(value, bool):
        raise wrong_type(param, "a boolean", value)
    return value


def wrong_type(param: str, expected: str, value: Any) -> InvalidRequest:
    """The error for a value of another type than expected. It says the type, never the value: values may be huge."""
    text = f"Invalid type for '{param}': expected {expected}, but got {type_name(value)} instead."
    return InvalidRequest(param, text, "invalid_type")


def missing(param: str) -> InvalidRequest:
    """The error for a field that has to be there."""
    return InvalidRequest(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


def type_name(value: Any) -> str:
    """What JSON calls it, with its article."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN or infinity"
    for types, name in _TYPE_NAMES:
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


_TYPE_NAMES: tuple[tuple[Any, str], ...] = (
    (type(None), "null"),
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal"),
    (str, "a string"),
    (Mapping, "an object"),
    (Sequence, "an array"),
)


def _check_bounds(param: str, value: float, smallest: float, largest: float, kind: str) -> None:
    if value < smallest:
        is_wrong, bound, code = "below minimum", f">= {smallest}", "below_min"
    elif value > largest:
        is_wrong, bound, code = "above maximum", f"<= {largest}", "above_max"
    else:
        return
    # An integer of a thousand digits is not repeated.
    got = str(value) if abs(value) < 2**64 else "a larger one" if value > 0 else "a smaller one"
    text = f"Invalid '{param}': {kind} {is_wrong} value. Expected a value {bound}, but got {got} instead."
    raise InvalidRequest(param, text, f"{kind}_{code}_value")
