"""Sampling on CUDA devices without sorting and without waiting for the device, so that it can be captured in a graph.

FlashInfer's renormalising kernels would do as well, but take 114 s to compile on first use.
"""

import torch
from torch import Tensor

from .. import triton_target
from ..registry import Target
from . import Draw

_BLOCK = 8192
_NUM_WARPS = 32


class TritonSampler:
    """See `Sampler`. Which tokens are equally likely is told by float32 e^(x - max x), before normalisation."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    @staticmethod
    def greedy(logits_RV: Tensor) -> Tensor:
        return logits_RV.argmax(-1)

    @staticmethod
    def sample(logits_RV: Tensor, draw: Draw) -> Tensor:
        num_rows, num_vocab = logits_RV.shape
        assert logits_RV.dtype == torch.float32 and logits_RV.stride(1) == 1, "logits are rows of float32"
        tokens_R = torch.empty(num_rows, dtype=torch.int64, device=logits_RV.device)
        if num_rows == 0:
            return tokens_R
        block = min(_BLOCK, triton_target.power_of_two(num_vocab))
        triton_target.kernels_of(__package__).sample[(num_rows,)](
            logits_RV,
            draw.temperature_R.contiguous(),
            draw.top_p_R.contiguous(),
            draw.top_k_R.contiguous(),
            draw.uniform_R.contiguous(),
            tokens_R,
            logits_RV.stride(0),
            SIZE=num_vocab,
            BLOCK=block,
            num_warps=min(_NUM_WARPS, max(1, block // 256)),
        )
        return tokens_R
