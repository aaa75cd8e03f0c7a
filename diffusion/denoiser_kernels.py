"""The operations that denoisers' blocks are made of, on the best backends of a device."""

from dataclasses import dataclass

import torch

from hemiola.kernels.gated_residual import GATED_RESIDUAL, GatedResidual
from hemiola.kernels.head_rope import HEAD_ROPE, HeadRope
from hemiola.kernels.modulated_norm import MODULATED_NORM, ModulatedNorm
from hemiola.kernels.registry import Target


@dataclass(frozen=True, slots=True)
class DenoiserKernels:
    """Stateless: blocks hand in their modules' weights."""

    norm: type[ModulatedNorm]
    residual: type[GatedResidual]
    heads: type[HeadRope]

    @classmethod
    def resolve(cls, device: str | torch.device, dtype: torch.dtype) -> "DenoiserKernels":
        target = Target.of(device, dtype)
        return cls(
            MODULATED_NORM.resolve(target).backend,
            GATED_RESIDUAL.resolve(target).backend,
            HEAD_ROPE.resolve(target).backend,
        )
