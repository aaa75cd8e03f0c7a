"""What happens when memory is short: who is parked for whom, who waits, who comes back when.

The arena has already evicted what it may. Then the latest-due state is parked for one that is due earlier; the
earliest-due state is never a victim; a parked state comes back only when its whole need fits without parking another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hemiola.core.errors import CannotFit
from hemiola.core.step import Pending, Shortfall

from .running import Running, RunningSet


@dataclass(slots=True)
class _Copy:
    """A park (`out`) or resume in flight."""

    entry: Running
    pending: Pending
    out: bool


class Pressure:
    """Parks, holds and resumes. `memory_version` grows whenever bytes became free."""

    def __init__(self, running: RunningSet, memory_version: Callable[[], int]) -> None:
        self._running = running
        self._memory_version = memory_version
        self._copies: list[_Copy] = []
        self._held: dict[int, tuple[Running, Shortfall]] = {}
        self._held_version = -1
        self.parked: list[Running] = []
        self.num_parks = 0

    @property
    def is_copying(self) -> bool:
        return bool(self._copies)

    def relieve(self, shortfall: Shortfall, due_s: float, spare: Any = None) -> bool:
        """Parks the latest-due state that is due later than `due_s`; False if there is none that can be parked."""
        candidates = [
            entry
            for entry in self._running.entries.values()
            if not (entry.in_flight or entry.is_held) and entry.state is not spare and entry.state.can_park
        ]
        candidates = [entry for entry in candidates if entry.state.due_s > due_s]
        for entry in sorted(candidates, key=_lateness, reverse=True):
            pending = entry.runner.park(entry.state)
            if isinstance(pending, Shortfall):  # no room in the host tier: perhaps for a smaller one
                continue
            entry.is_held = True
            self.num_parks += 1
            self.parked.append(entry)
            self._copies.append(_Copy(entry, pending, out=True))
            pending.wait()
            return True
        return False

    def hold(self, state: Any, shortfall: Shortfall) -> None:
        """Keeps a state from being launched until bytes became free."""
        entry = self._running.of(state)
        if entry is not None:
            entry.is_held = True
            self._held[id(state)] = (entry, shortfall)
            self._held_version = self._memory_version()

    def settle(self) -> None:
        """Notes finished copies, forgets what ended, and lets held states try again if bytes became free."""
        if self._copies:
            self._copies = [copy for copy in self._copies if not self._is_settled(copy)]
        if self._held and self._memory_version() != self._held_version:
            self._let_go()
        if self.parked:
            self.parked = [entry for entry in self.parked if self._is_running(entry)]

    def resume(self, entry: Running) -> bool:
        """Brings a parked state back; False if its whole need does not fit now."""
        if any(copy.entry is entry for copy in self._copies):
            return False
        pending = entry.runner.resume(entry.state)
        if isinstance(pending, Shortfall):
            return False
        self.parked.remove(entry)
        self._copies.append(_Copy(entry, pending, out=False))
        return True

    def stuck(self) -> tuple[Running, CannotFit] | None:
        """When no step can run and none is in flight: who must end so that others can. None: memory is not why."""
        if self._copies or any(not entry.is_held for entry in self._running.entries.values()):
            return None
        if any(self.resume(entry) for entry in sorted(self.parked, key=_lateness)):
            return None
        held = [(entry, shortfall.nbytes) for entry, shortfall in self._held.values() if self._is_running(entry)]
        held += [(entry, entry.state.bytes_needed) for entry in self.parked]
        if not held:
            return None
        entry, nbytes = max(held, key=lambda pair: _lateness(pair[0]))
        return entry, CannotFit(f"The next {entry.state.phase} step of '{entry.state.id}'", nbytes, 0)

    def _let_go(self) -> None:
        for entry, _ in self._held.values():
            entry.is_held = False
        self._held.clear()

    def _is_settled(self, copy: _Copy) -> bool:
        if not copy.pending.done():
            return False
        if not copy.out:
            copy.entry.is_held = False
        return True

    def _is_running(self, entry: Running) -> bool:
        return self._running.of(entry.state) is entry


def _lateness(entry: Running) -> tuple[float, int, float]:
    return entry.state.due_s, entry.state.priority, entry.state.arrival_s
