"""Torch reference of ragged attention: sequence by sequence, equal neighbours at once.

Shape suffixes: T tokens, S sequences of one length N, H query heads, K key heads, G = H / K, D head size.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from ..registry import Target
from . import ScoreOptions
from .cuda_targets import half_precision_objection
from .dense_torch import CUDNN_FIRST
from .scores import attend, causal_mask


class TorchRaggedAttention:
    """See `RaggedAttention`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    def run(
        self,
        q_THD: Tensor,
        k_TKD: Tensor,
        v_TKD: Tensor,
        lens: Sequence[int],
        options: ScoreOptions,
        *,
        is_causal: bool = True,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        runs = [
            _run(q_THD[a:b], k_TKD[a:b], v_TKD[a:b], num, options, is_causal, sinks_H)
            for a, b, num in _equal_runs(lens)
        ]
        return runs[0] if len(runs) == 1 else torch.cat(runs)


class CudnnRaggedAttention(TorchRaggedAttention):
    """The same through cuDNN, wherever torch's fused kernels can express the scores. See `RaggedAttention`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return half_precision_objection(target, max_head_dim=128)

    def run(
        self,
        q_THD: Tensor,
        k_TKD: Tensor,
        v_TKD: Tensor,
        lens: Sequence[int],
        options: ScoreOptions,
        *,
        is_causal: bool = True,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        with sdpa_kernel(list(CUDNN_FIRST), set_priority=True):
            return super().run(q_THD, k_TKD, v_TKD, lens, options, is_causal=is_causal, sinks_H=sinks_H)


def _equal_runs(lens: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(first token, end token, number of sequences) of each run of neighbours of equal length."""
    start = num = 0
    for i, length in enumerate(lens):
        num += 1
        if i + 1 == len(lens) or lens[i + 1] != length:
            yield start, start + num * length, num
            start, num = start + num * length, 0


def _run(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, num: int, options: ScoreOptions, is_causal: bool, sinks: Tensor | None
) -> Tensor:
    num_heads, num_kv = q_THD.shape[1], k_TKD.shape[1]
    q_SHND = q_THD.unflatten(0, (num, -1)).transpose(1, 2)
    k_SHND, v_SHND = (_per_query_head(x, num, num_heads // num_kv) for x in (k_TKD, v_TKD))
    length = q_SHND.shape[2]
    is_windowed = options.window is not None and options.window < length
    if is_windowed and not is_causal:
        raise ValueError("A window needs causal attention.")
    mask = causal_mask(length, length, options.window, q_THD) if is_windowed else None
    sinks = None if sinks is None else sinks.view(1, num_heads, 1, 1)
    out_SHND = attend(q_SHND, k_SHND, v_SHND, options, mask=mask, is_causal=is_causal, sinks=sinks)
    return out_SHND.transpose(1, 2).reshape(q_THD.shape)


def _per_query_head(x_TKD: Tensor, num: int, group: int) -> Tensor:
    x_SKND: Tensor = x_TKD.unflatten(0, (num, -1)).transpose(1, 2)
    return x_SKND if group == 1 else x_SKND.repeat_interleave(group, 1)
