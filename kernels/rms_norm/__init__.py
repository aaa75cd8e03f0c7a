"""Root mean square layer norm (https://arxiv.org/abs/1910.07467) over the last dimension."""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


class RmsNorm(Protocol):
    """A norm with its weight bound. Weights broadcast against the input: [C], or [H, D] for a weight per head."""

    def __init__(self, weight: Tensor, eps: float) -> None: ...

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    def __call__(self, x: Tensor) -> Tensor:
        """The norm of x, a new tensor."""
        ...

    def in_place(self, x: Tensor) -> Tensor:
        """The norm written over x, which may be a strided view."""
        ...

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Adds x to the residual in place and returns the norm of the sum."""
        ...


RMS_NORM: Operation[RmsNorm] = Operation(
    "rms_norm",
    {
        "triton": "hemiola.kernels.rms_norm.triton_backend:TritonRmsNorm",
        "torch": "hemiola.kernels.rms_norm.torch_reference:TorchRmsNorm",
    },
)
