"""Rotary position embedding (https://arxiv.org/abs/2104.09864), in the half-split pairing of Llama, behind the RMS norm
of heads that some models have.

Denoisers pair neighbours instead: see ../head_rope.
"""

from typing import Any, Protocol

from torch import Tensor

from ..registry import Operation, Target


class Rope(Protocol):
    """Rotations with given inverse frequencies [D / 2]; cosines and sines are scaled by `scale` (YaRN's factor)."""

    def __init__(self, inverse_frequencies: Tensor, scale: float = 1.0) -> None: ...

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    def at(self, positions_T: Tensor, dtype: Any) -> Any:
        """What all layers of a step need, computed once: the angles of its tokens, for inputs of that dtype."""
        ...

    @staticmethod
    def head_norm(weight_HD: Tensor, eps: float) -> Any:
        """What `rotate` takes as `norm`: an RMS norm of every head, with a weight for each, bound at load time."""
        ...

    def rotate(self, x_THD: Tensor, angles: Any, norm: Any = None) -> None:
        """Norms, where there is a norm, and rotates queries or keys in place; x may be a strided view."""
        ...


ROPE: Operation[Rope] = Operation(
    "rope",
    {
        "triton": "hemiola.kernels.rope.triton_backend:TritonRope",
        "torch": "hemiola.kernels.rope.torch_reference:TorchRope",
    },
)
