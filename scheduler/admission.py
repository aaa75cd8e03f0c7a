"""Who may start: queued requests and parked states, by urgency, as far as memory goes. Nobody overtakes the head.

A request that can never run is refused, with an event; one that lacks bytes stays queued, unless somebody who is due
later can be parked for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hemiola.core.errors import HemiolaError, StepFailed
from hemiola.core.events import Event, Failed
from hemiola.core.request import Request, TextRequest
from hemiola.core.service import completion_due_s, token_due_s
from hemiola.core.step import Refused, Runner, Shortfall

from .pressure import Lateness, Pressure, lateness, no_room
from .running import Running, RunningSet


def request_due_s(request: Request) -> float:
    """When the first thing that a request was promised is due."""
    return token_due_s(request, 0, 0.0) if isinstance(request, TextRequest) else completion_due_s(request)


class Admission:
    """The queue in front of the running set."""

    def __init__(
        self,
        runners: Mapping[str, Runner[Any]],
        running: RunningSet,
        pressure: Pressure,
        memory_version: Callable[[], int],
        emit: Callable[[Event], None],
    ) -> None:
        self._runners = runners
        self._running = running
        self._pressure = pressure
        self._memory_version = memory_version
        self._emit = emit
        self._queued: dict[str, Request] = {}
        self._has_news = False
        self._tried = (-1, -1)
        self._missing_bytes = 0  # of the request that was tried last and could not start

    @property
    def num_queued(self) -> int:
        return len(self._queued)

    def queue(self, request: Request) -> None:
        self._queued[request.id] = request
        self._has_news = True

    def remove(self, request_id: str) -> bool:
        """Takes a queued request back; False if it is not queued."""
        is_queued = self._queued.pop(request_id, None) is not None
        self._running.num_ended += is_queued
        return is_queued

    def admit(self) -> None:
        """Starts whoever can. Looks only when somebody came or ended, or bytes became free, since it last looked."""
        if not (self._queued or self._pressure.parked) or not (self._has_news or self._tried != self._circumstances):
            return
        self._has_news = False
        for waiting in sorted([*self._pressure.parked, *self._queued.values()], key=_urgency):
            if self._pressure.is_in_want(before=_lateness(waiting)):
                break
            if not (self._return(waiting) if isinstance(waiting, Running) else self._start(waiting)):
                break
        self._tried = self._circumstances

    @property
    def _circumstances(self) -> tuple[int, int]:
        return self._memory_version(), self._running.num_ended

    def unstick(self) -> bool:
        """Nothing runs: whoever is first in the queue starts now, or never will and ends loudly. False without one."""
        if not self._queued:
            return False
        num_queued, self._has_news = self.num_queued, True
        self.admit()
        if self.num_queued == num_queued:
            first = min(self._queued.values(), key=_urgency)
            self.remove(first.id)
            error = no_room(f"this request to '{first.model}'", self._missing_bytes)
            self._emit(Failed(first.id, error.code, error.message))
        return True

    def _return(self, parked: Running) -> bool:
        return self._pressure.may_return(parked) and self._pressure.resume(parked)

    def _start(self, request: Request) -> bool:
        """Admits or refuses; False if the request must stay queued."""
        runner = self._runners[request.model]
        while isinstance(outcome := self._ask(runner, request), Shortfall):
            if not self._pressure.relieve(outcome, _lateness(request)):
                self._missing_bytes = outcome.nbytes
                return False
        del self._queued[request.id]
        if isinstance(outcome, Refused):
            self._running.num_ended += 1
            self._emit(Failed(request.id, outcome.error.code, outcome.error.message))
        else:
            self._running.add(outcome, runner, is_request=True)
        return True

    def _ask(self, runner: Runner[Any], request: Request) -> Any:
        try:
            return runner.admit(request)
        except HemiolaError as error:
            return Refused(error)
        except Exception as error:
            failure = StepFailed(f"The request could not be admitted: {type(error).__name__}: {error}")
            failure.__cause__ = error
            return Refused(failure)


def _lateness(waiting: Running | Request) -> Lateness:
    if isinstance(waiting, Running):
        return lateness(waiting.state, waiting.state.due_s)
    return lateness(waiting, request_due_s(waiting))


def _urgency(waiting: Running | Request) -> tuple[int, float, float]:
    if isinstance(waiting, Running):
        state = waiting.state
        return state.priority, state.due_s, state.arrival_s - state.behind_s
    return waiting.priority, request_due_s(waiting), waiting.arrival_s - waiting.behind_s
