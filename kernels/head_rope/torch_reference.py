"""Torch reference of the heads' norm and rotation: a pair is a complex number, turned by a product."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ..registry import Target


class TorchHeadRope:
    """See `HeadRope`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def rotate(x_BLHE: Tensor, rope_NLF: Tensor | None, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
        heads = x_BLHE.float()
        if weight is not None:
            heads = _normed(heads, weight.float(), eps)
        if rope_NLF is not None:
            torch.view_as_complex(heads.unflatten(-1, (-1, 2))).mul_(rope_NLF.unsqueeze(2))
        return heads.to(x_BLHE.dtype)


def _normed(heads: Tensor, weight: Tensor, eps: float) -> Tensor:
    if weight.numel() == heads.shape[-1]:
        return rms_norm(heads, heads.shape[-1:], weight.flatten(), eps)
    return rms_norm(heads.flatten(2), (weight.numel(),), weight, eps).view(heads.shape)
