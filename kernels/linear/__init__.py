"""y = x W^T + b with the weight bound, so that a backend can lay it out as it likes best."""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


class Linear(Protocol):
    """A weight [out, in] and a bias [out] or None, bound at load time."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None: ...

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out], a new contiguous tensor."""
        ...


LINEAR: Operation[Linear] = Operation(
    "linear",
    {
        "fbgemm": "hemiola.kernels.linear.fbgemm:FbgemmLinear",
        "onednn": "hemiola.kernels.linear.onednn:OneDnnLinear",
        "torch": "hemiola.kernels.linear.torch_reference:TorchLinear",
    },
)
