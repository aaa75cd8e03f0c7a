"""UniPC for flow matching, as diffusers' UniPCMultistepScheduler steps with `prediction_type="flow_prediction"`.

A predictor of order 1 or 2 that predicts the clean sample, and a corrector of one order more, with B(h) = e^h - 1
("bh2"); https://arxiv.org/abs/2302.04867. All scalars depend on the schedule alone, so they are made once a request.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hemiola.core.errors import UnsupportedModel
from hemiola.kernels.registry import Target
from hemiola.kernels.solver_step import SOLVER_STEP

from .base import Options, Schedule

_REQUIRED = {  # name: (the one supported value, diffusers' default)
    "prediction_type": ("flow_prediction", "epsilon"),
    "use_flow_sigmas": (True, False),
    "predict_x0": (True, True),
    "solver_type": ("bh2", "bh2"),
    "lower_order_final": (True, True),
    "final_sigmas_type": ("zero", "zero"),
    "thresholding": (False, False),
    "use_karras_sigmas": (False, False),
    "use_exponential_sigmas": (False, False),
    "use_beta_sigmas": (False, False),
    "use_dynamic_shifting": (False, False),
    "shift_terminal": (None, None),
    "solver_p": (None, None),
}


class UniPC:
    """History: the last corrected sample, and the two last clean predictions, newest first."""

    num_history = 3

    def __init__(self, config: Mapping[str, Any], device: torch.device) -> None:
        self._device = device
        self._kernel = SOLVER_STEP.resolve(Target.of(device, torch.float32)).backend
        options = Options(config)
        for key, (allowed, default) in _REQUIRED.items():
            options.require(key, allowed, default)
        self._order: int = options.take("solver_order", 2)
        if self._order not in (1, 2):
            raise UnsupportedModel(f"{options.name}: 'solver_order' is {self._order}, and only 1 and 2 are supported.")
        self._num_train_timesteps: int = options.take("num_train_timesteps", 1000)
        self._shift: float = options.take("flow_shift", 1.0)
        self._uncorrected = frozenset(options.take("disable_corrector", ()))
        self._made = lru_cache(maxsize=64)(self._make)

    def schedule(
        self, num_steps: int, sigmas: Sequence[float] | None = None, num_tokens: int | None = None
    ) -> Schedule:
        return self._made(num_steps, None if sigmas is None else tuple(sigmas))

    def step(
        self, coefficients_RK: Tensor, output_RS: Tensor, sample_RS: Tensor, history: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        last, clean_1, clean_2 = history
        step = self._kernel.unipc
        following, corrected, clean = step(output_RS, sample_RS, last, clean_1, clean_2, coefficients_RK)
        return following, (corrected, clean, clean_1)

    def _make(self, num_steps: int, given: tuple[float, ...] | None) -> Schedule:
        line = np.linspace(1, 1 / self._num_train_timesteps, num_steps + 1)[:-1] if given is None else np.array(given)
        shifted = self._shift * line / (1 + (self._shift - 1) * line)
        if abs(shifted[0] - 1) < 1e-6:
            shifted[0] -= 1e-6  # log(1 - sigma) must be finite
        timesteps = torch.from_numpy(shifted * self._num_train_timesteps).to(torch.int64)
        sigmas = torch.from_numpy(np.concatenate([shifted, [0]]).astype(np.float32))
        orders = [self._order_at(step, num_steps) for step in range(num_steps)]
        rows = [self._coefficients(step, sigmas, orders) for step in range(num_steps)]
        return Schedule(timesteps, torch.stack(rows)).to(self._device)

    def _order_at(self, step: int, num_steps: int) -> int:
        """Lower while there is no history yet, and at the end."""
        return min(self._order, num_steps - step, step + 1)

    def _coefficients(self, step: int, sigmas: Tensor, orders: Sequence[int]) -> Tensor:
        zero, one = torch.zeros(()), torch.ones(())
        corrector = [one, zero, zero, zero, one, zero, zero]
        if step > 0 and step - 1 not in self._uncorrected:
            corrector = [zero, *_corrector(sigmas, step, orders[step - 1])]
        return torch.stack([sigmas[step], *corrector, *_predictor(sigmas, step, orders[step])])


def _log_snr(sigma: Tensor) -> Tensor:
    """log(alpha / sigma) of a flow, where alpha = 1 - sigma."""
    return torch.log(1 - sigma) - torch.log(sigma)


class _Jump:
    """From the sigma at index `start` to the next one, with the scalars that predictor and corrector share."""

    def __init__(self, sigmas: Tensor, start: int, order: int) -> None:
        sigma, following = sigmas[start], sigmas[start + 1]
        alpha = 1 - following
        h = _log_snr(following) - _log_snr(sigma)
        self.hh = -h
        self.phi_1 = torch.expm1(self.hh)
        self.sample = following / sigma
        self.clean = alpha * self.phi_1
        self.residual = alpha * torch.expm1(self.hh)
        self.ratio = torch.ones(())
        if order == 2:
            self.ratio = (_log_snr(sigmas[start - 1]) - _log_snr(sigma)) / h


def _predictor(sigmas: Tensor, step: int, order: int) -> list[Tensor]:
    jump = _Jump(sigmas, step, order)
    residual = jump.residual if order == 2 else torch.zeros(())
    return [jump.sample, jump.clean, residual, jump.ratio]


def _corrector(sigmas: Tensor, step: int, order: int) -> list[Tensor]:
    """Corrects the jump that led to `step`; `order` is that predictor's."""
    jump = _Jump(sigmas, step - 1, order)
    rho_old, rho_new = torch.zeros(()), torch.full((), 0.5)
    if order == 2:
        phi_2 = jump.phi_1 / jump.hh - 1
        phi_3 = phi_2 / jump.hh - 1 / 2
        ratios = torch.stack([jump.ratio, torch.ones(())])
        left = torch.stack([torch.pow(ratios, 0), torch.pow(ratios, 1)])
        right = torch.stack([phi_2 * 1 / jump.phi_1, phi_3 * 2 / jump.phi_1])
        rho_old, rho_new = torch.linalg.solve(left, right).unbind()
    return [jump.sample, jump.clean, jump.residual, jump.ratio, rho_old, rho_new]
