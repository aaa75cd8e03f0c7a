"""What every call may say besides what it asks for, and checks that all fronts share."""

import math
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from hemiola.core.errors import InvalidRequest
from hemiola.core.service import service_class


def engine_clock() -> float:
    """Seconds; the one clock that stamps arrivals and runs the scheduler (monotonic, the same in all processes)."""
    return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """Terms of one call, which becomes one request or several. See `core.request.Terms` for the fields."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    tenant: str = "default"
    service_class: str | None = None
    priority: int = 0
    deadline_s: float | None = None

    def fields(self, model: str, index: int, n: int) -> dict[str, Any]:
        """The Terms of request `index` of `n`."""
        given: dict[str, Any] = {
            "id": self.id if n == 1 else f"{self.id}-{index}",
            "model": model,
            "tenant": self.tenant,
            "priority": check_integer("priority", self.priority, -1000, 1000),
            "arrival_s": engine_clock(),
            "deadline_s": None if self.deadline_s is None else check_number("deadline_s", self.deadline_s, 0.0),
            "group": self.id if n > 1 else None,
            "index": index,
        }
        if self.service_class is not None:
            given["service_class"] = service_class(self.service_class).name
        return given


def check_integer(param: str, value: Any, smallest: int, largest: int) -> int:
    """The value, if it is an integer within the bounds.

    Raises:
        InvalidRequest: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(
            param, f"Invalid type for '{param}': expected an integer, but got {value!r} instead.", "invalid_type"
        )
    if not smallest <= value <= largest:
        bound, code = (
            (f">= {smallest}", "integer_below_min_value")
            if value < smallest
            else (f"<= {largest}", "integer_above_max_value")
        )
        raise InvalidRequest(param, f"Invalid '{param}': {value}. Expected a value {bound}.", code)
    return value


def check_number(param: str, value: Any, smallest: float = -math.inf, largest: float = math.inf) -> float:
    """The value, if it is a finite number within the bounds.

    Raises:
        InvalidRequest: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(
            param, f"Invalid type for '{param}': expected a finite number, but got {value!r} instead.", "invalid_type"
        )
    if not smallest <= value <= largest:
        bound, code = (
            (f">= {smallest}", "decimal_below_min_value")
            if value < smallest
            else (f"<= {largest}", "decimal_above_max_value")
        )
        raise InvalidRequest(param, f"Invalid '{param}': {value}. Expected a value {bound}.", code)
    return value
