"""Torch reference of sampling, without sorting the vocabulary unless a row needs it.

The threshold of top-k and top-p lies among the likeliest few tokens nearly always: they are found first, and only where
they do not reach far enough is a longer part of the vocabulary sorted.
"""

import torch
from torch import Tensor

from ..registry import Target
from . import Draw

NUM_CANDIDATES = 128


class TorchSampler:
    """See `Sampler`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def greedy(logits_RV: Tensor) -> Tensor:
        return logits_RV.argmax(-1)

    @staticmethod
    def sample(logits_RV: Tensor, draw: Draw) -> Tensor:
        probs_RV = torch.softmax(logits_RV / draw.temperature_R[:, None], -1)
        is_filtered_R = (draw.top_p_R < 1) | (draw.top_k_R > 0)
        if bool(is_filtered_R.any()):
            threshold_R = _threshold(probs_RV, draw, is_filtered_R)
            probs_RV = probs_RV.masked_fill(probs_RV < threshold_R[:, None], 0.0)
        cumulated_RV = probs_RV.cumsum(-1, dtype=torch.float64)
        target_R1 = (draw.uniform_R * cumulated_RV[:, -1])[:, None]
        # The first token whose sum exceeds the target: never one of probability 0, as the target is below the total.
        token_R1 = torch.searchsorted(cumulated_RV, target_R1, right=True)
        return token_R1.clamp_(max=probs_RV.shape[1] - 1)[:, 0]


def _threshold(probs_RV: Tensor, draw: Draw, is_filtered_R: Tensor) -> Tensor:
    """The least probability that is kept, per row; 0 where nothing is filtered."""
    num_vocab = probs_RV.shape[1]
    # One more than is asked for, to see whether the last one that is kept is among them.
    count = min(max(NUM_CANDIDATES, int(draw.top_k_R.max()) + 1), num_vocab)
    while True:
        top_RN = probs_RV.topk(count, -1).values
        kept_RN = _kept(top_RN, draw)
        if count == num_vocab or not bool((kept_RN[:, -1] & is_filtered_R).any()):
            break
        count = min(count * 16, num_vocab)
    least_R = top_RN.masked_fill(~kept_RN, float("inf")).amin(-1)
    return torch.where(is_filtered_R, least_R, torch.zeros_like(least_R))


def _kept(top_RN: Tensor, draw: Draw) -> Tensor:
    """Which of the likeliest tokens, in descending order, are kept. The first always is."""
    top_k_R1 = draw.top_k_R[:, None]
    least_R1 = top_RN.gather(1, (top_k_R1 - 1).clamp(0, top_RN.shape[1] - 1))
    in_k_RN = (top_k_R1 == 0) | (top_RN >= least_R1)
    sums_RN = top_RN.cumsum(-1, dtype=torch.float64)
    total_R1 = torch.where(top_k_R1 > 0, (sums_RN * in_k_RN).amax(-1, keepdim=True), 1.0)
    top_p_R1 = draw.top_p_R[:, None]
    in_p_RN = (sums_RN - top_RN < top_p_R1 * total_R1) | (top_p_R1 >= 1)
    kept_RN = in_k_RN & in_p_RN
    kept_RN[:, 0] = True
    return kept_RN
