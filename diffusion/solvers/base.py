"""What a solver is: the noise update between two denoise steps, stateless and batched.

A solver object belongs to a model and is never written to. What a request needs between steps is its `Schedule`
(fixed at admission), its step number and `num_history` tensors of its latents' shape, which its state holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from hemiola.core.errors import UnsupportedModel
from hemiola.core.staging import to_device


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of one request. Its tensors lie on the solver's device, so that no step copies anything to it.

    Fields:
        timesteps: what the model is told at each step, as diffusers tells it: float32 or int64 [num_steps].
        coefficients: the solver's own scalars, float32 [num_steps, K].
    """

    timesteps: Tensor
    coefficients: Tensor

    @property
    def num_steps(self) -> int:
        return len(self.timesteps)

    def to(self, device: torch.device) -> "Schedule":
        """The same on a device, behind what is enqueued on the current stream."""
        return Schedule(to_device(self.timesteps, device), to_device(self.coefficients, device))


class Solver(Protocol):
    """One way from noise to latents."""

    num_history: int

    def schedule(
        self, num_steps: int, sigmas: Sequence[float] | None = None, num_tokens: int | None = None
    ) -> Schedule:
        """The steps of a request.

        Args:
            num_steps: denoise steps, >= 1.
            sigmas: noise levels before shifting, if the family has its own ([num_steps]).
            num_tokens: image tokens, for schedules that depend on the resolution.
        """
        ...

    def step(
        self, coefficients_RK: Tensor, output_RS: Tensor, sample_RS: Tensor, history: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The next sample and the next history.

        Args:
            coefficients_RK: `Schedule.coefficients[step]` of each row, on the latents' device.
            output_RS: the model's prediction, float32.
            sample_RS: latents that it was predicted from, float32.
            history: `num_history` tensors [R, S]; zeros before the first step.
        """
        ...


class Options:
    """Reads a scheduler_config.json and refuses, by name, what the solver does not do."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.name = str(config.get("_class_name"))
        self._config = config

    def take(self, key: str, default: Any) -> Any:
        value = self._config.get(key, default)
        return default if value is None else value

    def require(self, key: str, allowed: Any, default: Any) -> None:
        """Insists on `allowed`; `default` is what an absent key means to diffusers.

        Raises:
            UnsupportedModel: another value.
        """
        value = self._config.get(key, default)
        if value != allowed:
            raise UnsupportedModel(f"{self.name}: '{key}' is {value!r}, and only {allowed!r} is supported.")
