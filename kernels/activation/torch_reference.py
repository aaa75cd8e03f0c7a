"""Torch reference of gated activations."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from ..registry import Target

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
}
_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.ops.aten.silu_.default,
    "gelu": torch.ops.aten.gelu_.default,
    "gelu_pytorch_tanh": partial(torch.ops.aten.gelu_.default, approximate="tanh"),
}


class TorchGatedActivation:
    """See `GatedActivation`."""

    def __init__(self, kind: str) -> None:
        check_kind(kind)
        self._function = _FUNCTIONS[kind]
        self._in_place = _IN_PLACE[kind]

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def __call__(self, gate_up: Tensor) -> Tensor:
        half = gate_up.shape[1] // 2
        return self._function(gate_up[:, :half]).mul_(gate_up[:, half:])

    def apart(self, gate: Tensor, up: Tensor) -> Tensor:
        return self._in_place(gate).mul_(up)


def check_kind(kind: str) -> None:
    """
    Raises:
        ValueError: there is no such activation.
    """
    if kind not in _FUNCTIONS:
        raise ValueError(f"Unknown activation '{kind}'. Known: {', '.join(_FUNCTIONS)}.")
