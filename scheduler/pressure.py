"""What happens when memory is short: who is parked for whom, who waits, who comes back when.

The arena has already evicted what it may. Then the latest-due state is parked for one that is due earlier; the
earliest-due state is never a victim; a parked state comes back only when its whole need fits without parking another,
and not before some request has ended: what fits between two steps of the other would be parked again at its next.
Of equal due times the later arrival is the later: among best-effort requests too there is always one that may go on.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hemiola.core.errors import CannotFit
from hemiola.core.step import Pending, Shortfall

from .running import Running, RunningSet

Lateness = tuple[float, int, float, str]
"""Due time, priority, arrival, id: a strict order."""


def lateness(of: Any, due_s: float) -> Lateness:
    """Of a request or a state that is due then."""
    return due_s, of.priority, of.arrival_s, of.id


@dataclass(slots=True)
class _Copy:
    """A park (`out`) or resume in flight."""

    entry: Running
    pending: Pending
    out: bool


class Pressure:
    """Parks, holds and resumes.

    Args:
        memory_version: grows whenever bytes became free.
        fail: ends a state that cannot be copied.
    """

    def __init__(
        self, running: RunningSet, memory_version: Callable[[], int], fail: Callable[[Any, Exception], None]
    ) -> None:
        self._running = running
        self._memory_version = memory_version
        self._fail = fail
        self._copies: list[_Copy] = []
        self._held: dict[int, tuple[Running, Shortfall]] = {}
        self._held_version = -1
        self._leaving: list[Running] = []
        self.parked: list[Running] = []
        self.parks: Counter[str] = Counter()  # by model

    @property
    def is_copying(self) -> bool:
        return bool(self._copies)

    def relieve(self, shortfall: Shortfall, than: Lateness) -> bool:
        """Parks the latest state that is later than that; False if there is none that can be parked now.

        If steps of all such states are in flight, the latest launches no other, and is parked when they are complete.
        """
        candidates = [
            entry
            for entry in self._running.entries.values()
            if (not entry.is_held or id(entry.state) in self._held) and entry.state.can_park and _lateness(entry) > than
        ]
        candidates.sort(key=_lateness, reverse=True)
        # Where the host tier has no room for the latest there may be some for a smaller one.
        if any(self._park(entry) for entry in candidates if not entry.in_flight):
            return True
        in_flight = [entry for entry in candidates if entry.in_flight]
        if in_flight and not self._leaving:
            self._held.pop(id(in_flight[0].state), None)
            in_flight[0].is_held = True
            self._leaving.append(in_flight[0])
        return False

    def _park(self, entry: Running) -> bool:
        """Parks a state that may be parked; False if the host tier has no room for it."""
        try:
            pending = entry.runner.park(entry.state)
        except Exception as error:
            self._fail(entry.state, error)
            return True
        if isinstance(pending, Shortfall):
            return False
        self._held.pop(id(entry.state), None)
        entry.is_held, entry.is_short, entry.waits_for_end = True, False, self._running.num_ended
        self.parks[entry.runner.model] += 1
        self.parked.append(entry)
        self._copies.append(_Copy(entry, pending, out=True))
        pending.wait()
        return True

    def hold(self, state: Any, shortfall: Shortfall) -> None:
        """Keeps a state from being launched until bytes became free."""
        self._retry_held()  # whoever waits already may have what was freed for this one in vain
        entry = self._running.of(state)
        if entry is not None:
            entry.is_held = entry.is_short = True
            self._held[id(state)] = (entry, shortfall)
            self._held_version = self._memory_version()

    def settle(self) -> None:
        """Notes finished copies, forgets what ended, and lets held states try again if bytes became free."""
        if self._leaving:
            self._leaving = [entry for entry in self._leaving if self._is_leaving(entry)]
        if self._copies:
            self._copies = [copy for copy in self._copies if not self._is_settled(copy)]
        self._retry_held()
        if self.parked:
            self.parked = [entry for entry in self.parked if self._is_running(entry)]

    def is_in_want(self, before: Lateness) -> bool:
        """Whether somebody who runs and is earlier than that lacks memory: it is not for those who come later."""
        return any(entry.is_short and _lateness(entry) < before for entry in self._running.entries.values())

    def may_return(self, entry: Running) -> bool:
        """Whether anything has changed for a parked state that could let it stay when it comes back."""
        return entry.waits_for_end < self._running.num_ended

    def resume(self, entry: Running) -> bool:
        """Brings a parked state back; False if its whole need does not fit now."""
        if any(copy.entry is entry for copy in self._copies):
            return False
        try:
            pending = entry.runner.resume(entry.state)
        except Exception as error:
            self.parked.remove(entry)
            self._fail(entry.state, error)
            return True
        if isinstance(pending, Shortfall):
            return False
        self.parked.remove(entry)
        self._copies.append(_Copy(entry, pending, out=False))
        return True

    @property
    def is_stuck(self) -> bool:
        """Whether nobody can go on: all that runs waits for memory or is parked. To be asked when nothing moves."""
        entries = self._running.entries.values()
        return bool(entries) and not self._copies and all(entry.is_held for entry in entries)

    def unstick(self) -> tuple[Running, CannotFit] | None:
        """Gets those who are stuck going again; if that cannot be, who must end so that others can."""
        held = [(entry, shortfall.nbytes) for entry, shortfall in self._held.values() if self._is_running(entry)]
        if self._park_to_tidy() if held else any(map(self.resume, sorted(self.parked, key=_lateness))):
            return None
        stuck = held or [(entry, entry.state.bytes_needed) for entry in self.parked]
        entry, nbytes = max(stuck, key=lambda pair: _lateness(pair[0]))
        return entry, no_room(f"the next {entry.state.phase} step of '{entry.state.model}'", nbytes)

    def _park_to_tidy(self) -> bool:
        """Parks the most urgent state that waits: what lies in the way may be its own, and it comes back in one place.

        Once, until some request has ended.
        """
        first = min((entry for entry, _ in self._held.values()), key=_lateness)
        if first.tidied_at == self._running.num_ended or not first.state.can_park or not self._park(first):
            return False
        first.tidied_at, first.waits_for_end = self._running.num_ended, -1
        return True

    def _retry_held(self) -> None:
        """Lets all held states try again if bytes became free since they were held."""
        if self._held and self._memory_version() != self._held_version:
            for entry, _ in self._held.values():
                entry.is_held = False
            self._held.clear()

    def _is_leaving(self, entry: Running) -> bool:
        """Whether it is still to be parked; it is when none of its steps are in flight."""
        if entry.in_flight and self._is_running(entry):
            return True
        if self._is_running(entry):
            entry.is_held = False
            if entry.state.can_park:
                self._park(entry)
        return False

    def _is_settled(self, copy: _Copy) -> bool:
        if not copy.pending.done():
            return False
        if not copy.out:
            copy.entry.is_held = False
        return True

    def _is_running(self, entry: Running) -> bool:
        return self._running.of(entry.state) is entry


def no_room(what: str, missing_bytes: int) -> CannotFit:
    """Of what nobody can make room for any more."""
    hint = "Ask for less at once, or raise the engine's 'memory_bytes' or 'host_bytes'."
    return CannotFit(f"Beside what is in use already, {what}", missing_bytes, 0, hint)


def _lateness(entry: Running) -> Lateness:
    return lateness(entry.state, entry.state.due_s)
