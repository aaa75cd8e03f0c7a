"""Softmax attention over already gathered keys, shared by the torch references.

Shape suffixes: A, B any two batch dimensions, N queries, L keys, D head size.
"""

import torch
from torch import Tensor
from torch.nn import functional

from . import ScoreOptions


def attend(
    q_ABND: Tensor,
    k_ABLD: Tensor,
    v_ABLD: Tensor,
    options: ScoreOptions,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    sinks: Tensor | None = None,
) -> Tensor:
    """[A, B, N, D]. torch's fused kernel wherever it can express the scores.

    Args:
        mask: added to the scores (0 or -inf), broadcastable to [A, B, N, L].
        is_causal: query n sees keys up to n; N equals L then.
        sinks: one more logit per row of scores, broadcastable to [A, B, 1, 1].
    """
    if options.softcap is None and sinks is None:
        return functional.scaled_dot_product_attention(
            q_ABND, k_ABLD, v_ABLD, attn_mask=mask, is_causal=is_causal and mask is None, scale=options.scale
        )
    scores_ABNL = torch.matmul(q_ABND, k_ABLD.transpose(-1, -2)).float().mul_(options.scale)
    if options.softcap is not None:
        scores_ABNL = scores_ABNL.div_(options.softcap).tanh_().mul_(options.softcap)
    if is_causal and mask is None:
        mask = causal_mask(q_ABND.shape[2], k_ABLD.shape[2], None, q_ABND)
    if mask is not None:
        scores_ABNL = scores_ABNL + mask
    weights_ABNL = _softmax(scores_ABNL, sinks).to(v_ABLD.dtype)
    return torch.matmul(weights_ABNL, v_ABLD)


def _softmax(scores_ABNL: Tensor, sinks: Tensor | None) -> Tensor:
    if sinks is None:
        return torch.softmax(scores_ABNL, -1)
    column = sinks.float().expand(*scores_ABNL.shape[:-1], 1)
    return torch.softmax(torch.cat((scores_ABNL, column), -1), -1)[..., :-1]


def causal_mask(num_queries: int, num_keys: int, window: int | None, like: Tensor) -> Tensor:
    """[N, L]: 0 where the query (the last queries are at the last keys) sees the key, else -inf."""
    age_NL = torch.arange(num_keys - num_queries, num_keys, device=like.device)[:, None] - torch.arange(
        num_keys, device=like.device
    )
    hidden = age_NL < 0 if window is None else (age_NL < 0) | (age_NL >= window)
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, float("-inf"))
