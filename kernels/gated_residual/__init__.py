"""What a denoiser's sublayer adds to its stream: x + gate * update, where the update may be normed first.

Shape suffixes: D transformer width, R modulation rows; `rows` is explained in ../modulation.py.
"""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


class GatedResidual(Protocol):
    """x and update are [..., D]; the result is a new contiguous tensor of x's dtype, computed in float32.

    gate_RD: [R, D], may be a strided view, of any floating dtype; None is a gate of ones.
    """

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def add(x: Tensor, update: Tensor, gate_RD: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """`x + gate * update`."""
        ...

    @staticmethod
    def add_normed(
        x: Tensor,
        update: Tensor,
        weight: Tensor | None,
        eps: float,
        gate_RD: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """`x + gate * rms_norm(update, weight)`; weight is [D] or None."""
        ...


GATED_RESIDUAL: Operation[GatedResidual] = Operation(
    "gated_residual",
    {
        "triton": "hemiola.kernels.gated_residual.triton_backend:TritonGatedResidual",
        "torch": "hemiola.kernels.gated_residual.torch_reference:TorchGatedResidual",
    },
)
