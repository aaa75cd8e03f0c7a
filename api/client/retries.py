"""When a request is sent once more: where nothing was done of it, so that nothing can be done twice.

That is so where no connection could be made, and where the server says that it took nothing: 429 and 503, as while its
engine starts again. Nothing else says so, and a stream that has begun is never asked for again. Knows no bodies.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TypeVar

from hemiola.core.errors import HemiolaError

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RETRIES = 2
_TAKES_NOTHING = frozenset({429, 503})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 8.0  # doubled each time, where the server wishes none
_LONGEST_WISH_S = 120.0  # beyond it, the caller is told at once
_JITTER = 0.25  # of a pause: those who were turned away together do not come back together


class TookNothing(Exception):
    """An attempt of which the server did nothing.

    Fields:
        error: what the caller is told if it is not tried again.
        wish_s: how long the server wishes to be left alone; None where it does not say, infinity: for good.
    """

    def __init__(self, error: HemiolaError, wish_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.wish_s = wish_s


def refused(error: HemiolaError, status: int, headers: Mapping[str, str]) -> HemiolaError | TookNothing:
    """What to raise for a response that is not good."""
    return TookNothing(error, _wish_s(headers)) if status in _TAKES_NOTHING else error


async def retried(attempt: Callable[[], Awaitable[T]], max_retries: int) -> T:
    """What the first good attempt gives; as many more are made as `max_retries`, while nothing was done.

    Raises:
        HemiolaError: of the last attempt.
    """
    for num_retries in count():
        try:
            return await attempt()
        except TookNothing as refusal:
            wish_s = refusal.wish_s
            if num_retries >= max_retries or (wish_s is not None and wish_s > _LONGEST_WISH_S):
                raise refusal.error from refusal.__cause__
            pause_s = _pause_s(num_retries, wish_s)
            log.info("Asked again in %.1f s: %s", pause_s, refusal.error.message)
        await asyncio.sleep(pause_s)
    raise AssertionError("counting does not end")


def _pause_s(num_retries: int, wish_s: float | None) -> float:
    """Never less than the server wishes."""
    own_s = min(_FIRST_PAUSE_S * 2 ** min(num_retries, 10), _LONGEST_PAUSE_S)
    shortest_s = wish_s if wish_s is not None and wish_s > 0 else own_s
    return shortest_s * random.uniform(1.0, 1.0 + _JITTER)


def _wish_s(headers: Mapping[str, str]) -> float | None:
    """From `retry-after-ms`, which OpenAI's servers send, or `retry-after` (RFC 9110, 10.2.3): seconds or a date."""
    if headers.get("x-should-retry") == "false":
        return float("inf")
    told = headers.get("retry-after", "")
    milliseconds, seconds = _number(headers.get("retry-after-ms", "")), _number(told)
    if milliseconds is not None:
        return milliseconds / 1000
    return _until(told) if seconds is None else seconds


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number >= 0 else None


def _until(date: str) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (at - datetime.now(UTC)).total_seconds() if at.tzinfo is not None else None
