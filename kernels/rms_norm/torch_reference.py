"""Torch reference of RMS norm. On a CPU two passes over small rows beat `torch.nn.functional.rms_norm` twofold.

norm(x) = x / sqrt(mean(x^2) + eps) * w = x / hypot(|x|, sqrt(C eps)) * (w sqrt(C)), with |x| the Euclidean length.
Half precision is computed in float32, as the models were trained.
"""

import math

import torch
from torch import Tensor

from ..registry import Target


class TorchRmsNorm:
    """See `RmsNorm`."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        size = weight.shape[-1]
        self._scaled_weight = weight.detach().float() * math.sqrt(size)
        self._floor = torch.full((1,), math.sqrt(size * eps), device=weight.device)
        self._is_float = weight.dtype == torch.float32

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def __call__(self, x: Tensor) -> Tensor:
        if not self._is_float:
            return self._norm(x.float()).to(x.dtype)
        return self._norm(x)

    def in_place(self, x: Tensor) -> Tensor:
        if not self._is_float:
            return x.copy_(self._norm(x.float()))
        length = torch.linalg.vector_norm(x, 2, -1, True)
        return x.div_(length.hypot_(self._floor)).mul_(self._scaled_weight)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        return self(residual.add_(x))

    def _norm(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, 2, -1, True)
        return x.div(length.hypot_(self._floor)).mul_(self._scaled_weight)
