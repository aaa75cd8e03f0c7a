"""Conditions: what prompts become, shared between requests as evictable leases of the arena.

A condition that some open batch is computing is known here as being made, so that nobody reads it before it is
written, or computes it twice. Knows nothing of how one is computed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hemiola.core.memory import Arena
from hemiola.core.memory.lease import Lease
from hemiola.core.step import Shortfall, Work


@dataclass(frozen=True, slots=True)
class ConditionKey:
    """Equal keys have equal conditions. The hash is taken once: ids may be long."""

    model: str
    token_ids: tuple[int, ...]
    _hash: int

    @classmethod
    def of(cls, model: str, token_ids: tuple[int, ...]) -> "ConditionKey":
        return cls(model, token_ids, hash((model, token_ids)))

    def __hash__(self) -> int:
        return self._hash


class Conditions:
    """The conditions of one model."""

    def __init__(self, arena: Arena, cost_key: tuple[str, str]) -> None:
        self._arena = arena
        self._cost_key = cost_key
        self._making: set[ConditionKey] = set()

    def find(self, key: ConditionKey) -> Lease | None:
        """The condition, locked for the caller; None when it is not there, or not written yet."""
        return None if key in self._making else self._arena.find(key)

    def is_made_now(self, key: ConditionKey) -> bool:
        """Whether somebody is computing it."""
        return key in self._making

    def begin(self, wanted: Iterable[tuple[ConditionKey, int, Work]]) -> dict[ConditionKey, Lease] | Shortfall:
        """Leases for conditions to be computed (their bytes, and the work that they save), locked once; or none."""
        leases: dict[ConditionKey, Lease] = {}
        for key, nbytes, saves in wanted:
            lease = self._arena.share(key, nbytes, saves, self._cost_key)
            if isinstance(lease, Shortfall):
                self.abandon(leases)
                return lease
            leases[key] = lease
            self._making.add(key)
        return leases

    def finish(self, leases: dict[ConditionKey, Lease]) -> None:
        """They are written: from now on they can be found. The maker's locks remain, and are the caller's to drop."""
        self._making.difference_update(leases)

    def forget(self, key: ConditionKey) -> None:
        """Nobody finds it any more; those who hold it keep it."""
        lease = self.find(key)
        if lease is not None:
            lease.release()
            lease.unlock()

    def abandon(self, leases: dict[ConditionKey, Lease]) -> None:
        """They will not be written: forgets them."""
        self._making.difference_update(leases)
        for lease in leases.values():
            lease.release()
            lease.unlock()
