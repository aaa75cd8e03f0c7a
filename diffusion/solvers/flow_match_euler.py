"""The Euler solver of flow matching, as diffusers' FlowMatchEulerDiscreteScheduler steps."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hemiola.core.errors import UnsupportedModel
from hemiola.kernels.registry import Target
from hemiola.kernels.solver_step import SOLVER_STEP

from .base import Options, Schedule

_OFF = ("invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "stochastic_sampling")


class FlowMatchEuler:
    """`x + (sigma_next - sigma) * velocity`. Its schedule is a straight line of sigmas, shifted towards noise."""

    num_history = 0

    def __init__(self, config: Mapping[str, Any], device: torch.device) -> None:
        self._device = device
        self._kernel = SOLVER_STEP.resolve(Target.of(device, torch.float32)).backend
        options = Options(config)
        for key in _OFF:
            options.require(key, False, default=False)
        options.require("shift_terminal", None, default=None)
        self._num_train_timesteps: int = options.take("num_train_timesteps", 1000)
        self._shift: float = options.take("shift", 1.0)
        self._is_dynamic: bool = options.take("use_dynamic_shifting", False)
        self._time_shift: str = options.take("time_shift_type", "exponential")
        if self._time_shift not in ("exponential", "linear"):
            raise UnsupportedModel(f"{options.name}: 'time_shift_type' is {self._time_shift!r}, "
                                   "and only 'exponential' and 'linear' are supported.")  # fmt: skip
        short, long = options.take("base_image_seq_len", 256), options.take("max_image_seq_len", 4096)
        low, high = options.take("base_shift", 0.5), options.take("max_shift", 1.15)
        self._mu_slope: float = (high - low) / (long - short)
        self._mu_offset: float = low - self._mu_slope * short
        self._made = lru_cache(maxsize=256)(self._make)

    def schedule(
        self, num_steps: int, sigmas: Sequence[float] | None = None, num_tokens: int | None = None
    ) -> Schedule:
        shaping = num_tokens if self._is_dynamic else None
        return self._made(num_steps, None if sigmas is None else tuple(sigmas), shaping)

    def step(
        self, coefficients_RK: Tensor, output_RS: Tensor, sample_RS: Tensor, history: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self._kernel.flow_euler(sample_RS, output_RS, coefficients_RK[:, 0]), ()

    def _make(self, num_steps: int, sigmas: tuple[float, ...] | None, num_tokens: int | None) -> Schedule:
        unshifted = self._line(num_steps) if sigmas is None else np.array(sigmas).astype(np.float32)
        shifted = torch.from_numpy(self._shifted(unshifted, num_tokens)).to(torch.float32)
        ends = torch.cat([shifted, torch.zeros(1)])
        return Schedule(shifted * self._num_train_timesteps, (ends[1:] - ends[:-1]).unsqueeze(1)).to(self._device)

    def _line(self, num_steps: int) -> NDArray[np.floating[Any]]:
        """Even sigmas between the ends of the training schedule, which is shifted itself unless shifting is dynamic."""
        total = self._num_train_timesteps
        train = torch.from_numpy(np.linspace(1, total, total, dtype=np.float32)[::-1].copy()) / total
        if not self._is_dynamic:
            train = self._shift * train / (1 + (self._shift - 1) * train)
        return np.linspace(train[0].item() * total, train[-1].item() * total, num_steps) / total

    def _shifted(self, sigmas: NDArray[np.floating[Any]], num_tokens: int | None) -> NDArray[np.floating[Any]]:
        if not self._is_dynamic:
            return self._shift * sigmas / (1 + (self._shift - 1) * sigmas)
        assert num_tokens is not None, "dynamic shifting depends on the number of image tokens"
        mu = num_tokens * self._mu_slope + self._mu_offset
        if self._time_shift == "exponential":
            return math.exp(mu) / (math.exp(mu) + (1 / sigmas - 1) ** 1.0)
        return mu / (mu + (1 / sigmas - 1) ** 1.0)
