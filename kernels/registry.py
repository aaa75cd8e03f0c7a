"""Which backends an operation has, which of them can run on a device, and which one is taken, with the reason.

Backends are imported only when they are asked about. An operation lists its backends best first; "auto" takes the
first that has nothing against the target. Knows no operation.
"""

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

log = logging.getLogger(__name__)


class UnknownBackend(ValueError):
    """No backend of that name: the message lists those there are."""


class UnusableBackend(ValueError):
    """There is such a backend, but it cannot run here: the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a backend would have to run on.

    Fields:
        device_type: `cpu` or `cuda`.
        dtype: of activations.
        capability: compute capability of a CUDA device, (9, 0) for an H100; None elsewhere.
    """

    device_type: str
    dtype: torch.dtype
    capability: tuple[int, int] | None = None

    @classmethod
    def of(cls, device: str | torch.device, dtype: torch.dtype) -> "Target":
        """The target that a device is."""
        device = torch.device(device)
        capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
        return cls(device.type, dtype, capability)

    def __str__(self) -> str:
        arch = f" sm{self.capability[0]}{self.capability[1]}" if self.capability else ""
        return f"{self.device_type}{arch}, {str(self.dtype).removeprefix('torch.')}"


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
    """An operation's backends by name, best first, each as "module:class"."""

    def __init__(self, name: str, backends: Mapping[str, str]) -> None:
        self.name = name
        self._backends = dict(backends)

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
        return tuple(name for name in self._backends if self.why_not(name, target) is None)

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
        for name in self._backends:
            objection = self.why_not(name, target)
            if objection is None:
                reason = "; ".join([str(target), *objections])
                return Resolved(self.name, "auto", name, reason, self.load(name))
            objections.append(f"not {name}: {objection}")
        raise UnusableBackend(f"No {self.name} backend can run on {target}: {'; '.join(objections)}.")
