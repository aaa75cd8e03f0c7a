"""Queries and keys of denoisers: RMS norm, then rotary embedding of neighbouring pairs (https://arxiv.org/abs/2104.09864).

Language models pair the halves of a head instead: see ../rope.
Shape suffixes: B segments, L tokens of one, H heads, E head size, F = E / 2 pairs; N is B, or 1 for positions shared by
all segments.
"""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


class HeadRope(Protocol):
    """Norm and rotation in float32, rounded once."""

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def rotate(x_BLHE: Tensor, rope_NLF: Tensor | None, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
        """The normed and rotated x, of its dtype. May overwrite x.

        Args:
            x_BLHE: heads; may be a strided view whose last dimension is contiguous.
            rope_NLF: complex64, cos + i sin of each pair's angle; None does not rotate.
            weight: [E] norms every head alone, [H * E] all heads of a token together; None does not norm.
            eps: of the norm.
        """
        ...


HEAD_ROPE: Operation[HeadRope] = Operation(
    "head_rope",
    {
        "triton": "hemiola.kernels.head_rope.triton_backend:TritonHeadRope",
        "torch": "hemiola.kernels.head_rope.torch_reference:TorchHeadRope",
    },
)
