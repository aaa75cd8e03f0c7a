"""Torch reference of linear layers."""

from torch import Tensor
from torch.nn import functional

from ..registry import Target


class TorchLinear:
    """See `Linear`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight, self._bias)
