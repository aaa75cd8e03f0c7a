"""Torch reference of modulated norms."""

import torch
from torch import Tensor
from torch.nn import functional

from ..modulation import per_token
from ..registry import Target


class TorchModulatedNorm:
    """See `ModulatedNorm`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

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
        normed = functional.layer_norm(x.float(), x.shape[-1:], _float(weight), _float(bias), eps)
        return _modulated(normed, scale_RD, shift_RD, rows).to(x.dtype)

    @staticmethod
    def rms_norm(
        x: Tensor, weight: Tensor | None, eps: float, scale_RD: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        normed = functional.rms_norm(x.float(), x.shape[-1:], _float(weight), eps)
        return _modulated(normed, scale_RD, None, rows).to(x.dtype)


def _modulated(normed: Tensor, scale_RD: Tensor | None, shift_RD: Tensor | None, rows: Tensor | None) -> Tensor:
    """May overwrite what was normed."""
    if scale_RD is None:
        assert shift_RD is None, "a shift needs a scale"
        return normed
    num_tokens = normed.numel() // normed.shape[-1]
    scale = 1 + per_token(scale_RD, rows, num_tokens)
    tokens = normed.reshape(len(scale), -1, normed.shape[-1])
    if shift_RD is None:
        tokens.mul_(scale)
    else:
        tokens = torch.addcmul(per_token(shift_RD, rows, num_tokens), tokens, scale)
    return tokens.view(normed.shape)


def _float(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.float()
