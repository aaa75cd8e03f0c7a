"""Torch reference of gated activations."""

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.nn import functional

from ..registry import Target

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
}


class TorchGatedActivation:
    """See `GatedActivation`."""

    def __init__(self, kind: str) -> None:
        if kind not in _FUNCTIONS:
            raise ValueError(f"Unknown activation '{kind}'. Known: {', '.join(_FUNCTIONS)}.")
        self._function = _FUNCTIONS[kind]

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def __call__(self, gate_up: Tensor) -> Tensor:
        half = gate_up.shape[1] // 2
        return self._function(gate_up[:, :half]).mul_(gate_up[:, half:])
