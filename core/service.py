"""Service classes: what kind of promptness a request was promised, and when its next step is due.

Who holds up others is due earlier: by as much as they will take, so that all of them can be in time.

The only place that turns a class into times. Knows requests' Terms and nothing of models.
"""

import math
from dataclasses import dataclass

from .errors import InvalidRequest
from .request import Terms


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """Targets in seconds; `math.inf` is best effort. `weight` is the fair share when nothing is due."""

    name: str
    first_token_s: float
    inter_token_s: float
    completion_s: float
    weight: float


SERVICE_CLASSES = {
    c.name: c
    for c in (
        ServiceClass("interactive", first_token_s=0.5, inter_token_s=0.15, completion_s=30.0, weight=4.0),
        ServiceClass("standard", first_token_s=2.0, inter_token_s=0.3, completion_s=120.0, weight=2.0),
        ServiceClass("background", first_token_s=math.inf, inter_token_s=math.inf, completion_s=math.inf, weight=1.0),
    )
}


def service_class(name: str) -> ServiceClass:
    """The class of that name.

    Raises:
        InvalidRequest: no such class.
    """
    if name not in SERVICE_CLASSES:
        raise InvalidRequest(
            "service_class", f"Invalid 'service_class': '{name}'. Allowed: {', '.join(SERVICE_CLASSES)}."
        )
    return SERVICE_CLASSES[name]


def token_due_s(terms: Terms, num_generated: int, last_token_s: float) -> float:
    """When the next token of a text request is due, on the engine's clock.

    Never later than all of it is wanted. What waits for its end lets it begin earlier; once it is being written, its
    tokens come as its class promises, or they would crowd out what was promised to others.
    """
    promised = SERVICE_CLASSES[terms.service_class]
    if num_generated == 0:
        due_s = terms.arrival_s + promised.first_token_s - terms.behind_s
    else:
        due_s = last_token_s + promised.inter_token_s
    if terms.deadline_s is None:
        return due_s
    return min(due_s, terms.arrival_s + terms.deadline_s - terms.behind_s)


def completion_due_s(terms: Terms) -> float:
    """When the whole of a media request is due, on the engine's clock."""
    promised_s = SERVICE_CLASSES[terms.service_class].completion_s
    return terms.arrival_s + (promised_s if terms.deadline_s is None else terms.deadline_s) - terms.behind_s
