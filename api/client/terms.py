"""What every request says of who asks and how soon it matters, as far as a server lets a caller say it."""

from typing import Any

from hemiola.core.errors import InvalidRequest

from ..front.terms import CallTerms


def term_fields(terms: CallTerms) -> dict[str, Any]:
    """Fields of a body. What of a program waits for what is not among them: a server knows that of its own programs.

    Raises:
        InvalidRequest: terms that cannot be said over HTTP.
    """
    if terms.deadline_s is not None:
        raise InvalidRequest(
            "deadline_s", "Unsupported parameter: 'deadline_s' cannot be sent to a server.", "unsupported_parameter"
        )
    if terms.tenant != "default":
        raise InvalidRequest(
            "tenant",
            "Unsupported parameter: 'tenant' cannot be sent to a server; it goes by the API key.",
            "unsupported_parameter",
        )
    return {"priority": terms.priority or None, "service_class": terms.service_class}


def request_ids(terms: CallTerms, count: int) -> list[str]:
    """Of the requests of one call, as the engine would call them."""
    return [terms.id] if count == 1 else [f"{terms.id}-{i}" for i in range(count)]
