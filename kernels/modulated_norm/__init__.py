"""Norms of denoisers, scaled and shifted by what the step and the prompt say: norm(x) * (1 + scale) + shift.

The adaptive layer norm of DiT (https://arxiv.org/abs/2212.09748), and its root mean square variant.
Shape suffixes: D transformer width, R modulation rows; `rows` is explained in ../modulation.py.
"""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


class ModulatedNorm(Protocol):
    """x is [..., D]; the result is a new contiguous tensor of x's dtype, computed in float32 and rounded once.

    scale_RD, shift_RD: [R, D], may be strided views (parts of one projection), of any floating dtype. Without a scale
    it is a plain norm. weight, bias: [D] or None.
    """

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def layer_norm(
        x: Tensor,
        eps: float,
        scale_RD: Tensor | None = None,
        shift_RD: Tensor | None = None,
        rows: Tensor | None = None,
        *,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """`layer_norm(x, weight, bias) * (1 + scale) + shift`; a shift needs a scale, a bias needs a weight."""
        ...

    @staticmethod
    def rms_norm(
        x: Tensor, weight: Tensor | None, eps: float, scale_RD: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """`rms_norm(x, weight) * (1 + scale)`."""
        ...


MODULATED_NORM: Operation[ModulatedNorm] = Operation(
    "modulated_norm",
    {
        "triton": "hemiola.kernels.modulated_norm.triton_backend:TritonModulatedNorm",
        "torch": "hemiola.kernels.modulated_norm.torch_reference:TorchModulatedNorm",
    },
)
