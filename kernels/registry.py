"""Which backends an operation has, which of them can run on a device, and which one is taken, with the reason.

Backends are imported only when they are asked about. Of those that have nothing against the target, "auto" takes the
one with the highest measured speed on that architecture; without figures, the first in the operation's list, which is
best first. Knows no operation.
"""

import importlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import torch

log = logging.getLogger(__name__)


class UnknownBackend(ValueError):
    """No backend of that name: the message lists those there are."""


class UnusableBackend(ValueError):
    """There is such a backend, but it cannot run here: the message says why."""


Need = Literal["sinks", "softcap", "window", "bias"]
Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Target:
    """What a backend would have to run on, and what for.

    Fields:
        device_type: `cpu` or `cuda`.
        dtype: of activations.
        capability: compute capability of a CUDA device, (9, 0) for an H100; None elsewhere.
        head_dim: of attention; None where it is not known yet or means nothing.
        needs: what not every backend of attention has and some call will ask for.
    """

    device_type: str
    dtype: torch.dtype
    capability: Capability | None = None
    head_dim: int | None = None
    needs: frozenset[Need] = frozenset()

    @classmethod
    def of(
        cls,
        device: str | torch.device,
        dtype: torch.dtype,
        *,
        head_dim: int | None = None,
        needs: Iterable[Need] = (),
    ) -> "Target":
        """The target that a device is."""
        device = torch.device(device)
        capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
        return cls(device.type, dtype, capability, head_dim, frozenset(needs))

    def __str__(self) -> str:
        device = self.device_type + (f" {_arch(self.capability)}" if self.capability else "")
        head = [] if self.head_dim is None else [f"heads of {self.head_dim}"]
        return ", ".join([device, str(self.dtype).removeprefix("torch."), *head, *sorted(self.needs)])


def _arch(capability: Capability) -> str:
    return f"sm{capability[0]}{capability[1]}"


class Backend(Protocol):
    """What every backend class has beside its operation's interface."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        """Why it cannot run on the target (`flashinfer is not installed`), or None if it can."""
        ...


B = TypeVar("B", bound=Backend)


@dataclass(frozen=True, slots=True)
class Resolved(Generic[B]):
    """A backend that was chosen. `str()` of it is the line for the log."""

    operation: str
    asked: str
    name: str
    reason: str
    backend: type[B]

    def __str__(self) -> str:
        return f"{self.operation}: {self.asked} -> {self.name} ({self.reason})"


class Operation(Generic[B]):
    """An operation's backends by name, best first, each as "module:class".

    Args:
        tflops: measured speed of backends by compute capability, of one task that all of them did.
    """

    def __init__(
        self, name: str, backends: Mapping[str, str], tflops: Mapping[Capability, Mapping[str, float]] | None = None
    ) -> None:
        self.name = name
        self._backends = dict(backends)
        self._tflops = dict(tflops or {})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._backends)

    def load(self, name: str) -> type[B]:
        """Imports a backend.

        Raises:
            UnknownBackend: there is none of that name.
        """
        if name not in self._backends:
            known = ", ".join(self._backends)
            raise UnknownBackend(f"Unknown {self.name} backend '{name}'. Known: auto, {known}.")
        module, _, attribute = self._backends[name].partition(":")
        backend: type[B] = getattr(importlib.import_module(module), attribute)
        return backend

    def why_not(self, name: str, target: Target) -> str | None:
        """Why a backend cannot run on the target, or None if it can."""
        return self.load(name).why_not(target)

    def usable(self, target: Target) -> tuple[str, ...]:
        """Names of the backends that can run on the target, best first."""
        return tuple(name for name in self._ranked(target) if self.why_not(name, target) is None)

    def _ranked(self, target: Target) -> list[str]:
        figures = self._figures(target)
        return sorted(self._backends, key=lambda name: -figures.get(name, 0.0))

    def _figures(self, target: Target) -> Mapping[str, float]:
        return self._tflops.get(target.capability, {}) if target.capability else {}

    def resolve(self, target: Target, choice: str = "auto") -> Resolved[B]:
        """The backend that was asked for, or the best one; logs which and why.

        Raises:
            UnknownBackend: there is none of that name.
            UnusableBackend: it cannot run on the target, or none can.
        """
        resolved = self._best(target) if choice == "auto" else self._asked(target, choice)
        log.info("%s", resolved)
        return resolved

    def _asked(self, target: Target, choice: str) -> Resolved[B]:
        objection = self.why_not(choice, target)
        if objection is not None:
            raise UnusableBackend(f"The {self.name} backend '{choice}' cannot run on {target}: {objection}.")
        return Resolved(self.name, choice, choice, f"asked for; {target}", self.load(choice))

    def _best(self, target: Target) -> Resolved[B]:
        objections: list[str] = []
        figures = self._figures(target)
        for name in self._ranked(target):
            objection = self.why_not(name, target)
            if objection is None:
                figure = [f"{figures[name]:.0f} TFLOP/s measured"] if name in figures else []
                reason = "; ".join([str(target), *figure, *objections])
                return Resolved(self.name, "auto", name, reason, self.load(name))
            objections.append(f"not {name}: {objection}")
        raise UnusableBackend(f"No {self.name} backend can run on {target}: {'; '.join(objections)}.")
