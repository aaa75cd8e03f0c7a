"""Torch reference of gated residuals."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ..modulation import per_token
from ..registry import Target


class TorchGatedResidual:
    """See `GatedResidual`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def add(x: Tensor, update: Tensor, gate_RD: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        if gate_RD is None:
            return (x.float() + update.float()).to(x.dtype)
        dim = x.shape[-1]
        gate = per_token(gate_RD, rows, x.numel() // dim)
        tokens, added = (part.float().reshape(len(gate), -1, dim) for part in (x, update))
        return torch.addcmul(tokens, gate, added).to(x.dtype).view(x.shape)

    @staticmethod
    def add_normed(
        x: Tensor,
        update: Tensor,
        weight: Tensor | None,
        eps: float,
        gate_RD: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        scale = None if weight is None else weight.float()
        normed = rms_norm(update.float(), update.shape[-1:], scale, eps)
        return TorchGatedResidual.add(x, normed, gate_RD, rows)
