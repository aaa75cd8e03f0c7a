"""What runs: states with what the scheduler alone knows of them. Knows nothing of order or memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hemiola.core.step import Runner


@dataclass(slots=True, eq=False)
class Running:
    """A state (of a request or a chore) and its scheduling.

    Fields:
        depth: how many of its steps may be in flight.
        in_flight: how many are.
        is_held: parked, being copied, or waiting for memory: not to be launched.
        waits_for_end: how many requests had ended when it was parked for another: it comes back when one more has.
        is_short: its step lacked memory, and it was not launched since. Nobody later takes memory before it.
        is_suspect: a batch with it failed; it runs alone until a step that was launched since then succeeded.
        num_before_fault: how many of its steps in flight were launched before.
        tidied_at: how many requests had ended when it was parked only to put its memory in order.
    """

    state: Any
    runner: Runner[Any]
    is_request: bool = True
    depth: int = 1
    in_flight: int = 0
    is_held: bool = False
    waits_for_end: int = -1
    is_short: bool = False
    is_suspect: bool = False
    num_before_fault: int = 0
    tidied_at: int = -1


class RunningSet:
    """All running states and, for requests, their ids; in the order they came. States are compared by identity.

    `num_ended` counts requests that are over, those too that never ran. `depth` says of a state how many of its steps
    may be in flight.
    """

    def __init__(self, depth: Callable[[Any], int] = lambda state: 1) -> None:
        self.num_ended = 0
        self._depth_of = depth
        self.entries: dict[Any, Running] = {}
        self._by_id: dict[str, Running] = {}

    def add(self, state: Any, runner: Runner[Any], *, is_request: bool = False) -> Running:
        entry = Running(state, runner, is_request, self._depth_of(state))
        self.entries[state] = entry
        if is_request:
            self._by_id[state.id] = entry
        return entry

    def remove(self, entry: Running) -> None:
        del self.entries[entry.state]
        if entry.is_request:
            del self._by_id[entry.state.id]
            self.num_ended += 1

    def of(self, state: Any) -> Running | None:
        """The entry of a state; None once it has ended."""
        return self.entries.get(state)

    def find(self, request_id: str) -> Running | None:
        return self._by_id.get(request_id)

    def launched(self, states: Iterable[Any]) -> None:
        for state in states:
            entry = self.entries.get(state)
            if entry is not None:  # rows of an open batch may have ended
                entry.in_flight += 1
                entry.is_short = False

    def collected(self, states: Iterable[Any]) -> None:
        for state in states:
            entry = self.entries.get(state)
            if entry is not None:
                entry.in_flight -= 1
                if entry.num_before_fault:
                    entry.num_before_fault -= 1
                else:
                    entry.is_suspect = False

    def suspect(self, states: Iterable[Any]) -> None:
        """A step over them failed when it was to be launched."""
        for state in states:
            entry = self.entries.get(state)
            if entry is not None:
                entry.is_suspect = True
                entry.num_before_fault = entry.in_flight
