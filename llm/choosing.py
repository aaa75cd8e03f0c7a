"""From logits to tokens, and to the log probabilities that were asked for. The seam between forward and sampling.

Shape suffixes: R rows, V vocabulary, N rows that want log probabilities, K likeliest tokens.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.events import TopLogprob
from ..core.request import Sampling
from ..core.staging import ints_to_device, to_device
from ..kernels.sampling import Draw, Sampler
from .random_stream import uniforms

_LEAST = 1e-30
"""Of temperature and top_p. Less means the same, but is no float32 any more, or makes infinite logits: no token at all.
"""


class Asked(NamedTuple):
    """A row's sampling parameters, and how many tokens were sampled for it before."""

    sampling: Sampling
    counter: int


class LogProbs(NamedTuple):
    """Of the N rows that asked, in the order of `counts`: row -> how many of the likeliest tokens it wants."""

    counts: dict[int, int]
    chosen_N: Tensor
    top_NK: Tensor
    top_ids_NK: Tensor


class Chosen(NamedTuple):
    """Tokens of the step's sampled rows, int64 [R] on the device; log probabilities if any row asked."""

    tokens_R: Tensor
    log_probs: LogProbs | None


def choose(sampler: type[Sampler], logits_RV: Tensor, asked: Mapping[int, Asked]) -> Chosen:
    """One token per row; each depends on nothing but its row.

    Args:
        asked: by row; rows without an entry are greedy, have nothing forced and want no log probabilities.
    """
    drawn = [row for row, (sampling, _) in asked.items() if sampling.temperature > 0]
    if len(drawn) == logits_RV.shape[0]:
        tokens_R = sampler.sample(logits_RV, _draw(list(asked.values()), logits_RV.device))
    else:
        tokens_R = sampler.greedy(logits_RV)
        if drawn:
            index = ints_to_device(drawn, logits_RV.device)
            draw = _draw([asked[row] for row in drawn], logits_RV.device)
            tokens_R.index_copy_(0, index, sampler.sample(logits_RV.index_select(0, index), draw))
    _force(tokens_R, asked)
    return Chosen(tokens_R, _log_probs(logits_RV, tokens_R, asked))


def _force(tokens_R: Tensor, asked: Mapping[int, Asked]) -> None:
    """Puts forced tokens in the place of what was chosen."""
    forced = {
        row: sampling.forced_token_ids[n] for row, (sampling, n) in asked.items() if n < len(sampling.forced_token_ids)
    }
    if forced:
        rows, token_ids = (ints_to_device(each, tokens_R.device) for each in zip(*forced.items(), strict=True))
        tokens_R.index_copy_(0, rows, token_ids.to(tokens_R.dtype))


def _draw(asked: Sequence[Asked], device: torch.device) -> Draw:
    samplings = [sampling for sampling, _ in asked]
    numbers = uniforms([sampling.seed for sampling in samplings], [counter for _, counter in asked])
    floats = np.array([(max(s.temperature, _LEAST), max(s.top_p, _LEAST)) for s in samplings], dtype=np.float32)
    temperature_R, top_p_R = to_device(torch.from_numpy(floats), device).unbind(1)
    top_k_R = ints_to_device([s.top_k for s in samplings], device)
    return Draw(temperature_R, top_p_R, top_k_R, to_device(torch.from_numpy(numbers), device))


def _log_probs(logits_RV: Tensor, tokens_R: Tensor, asked: Mapping[int, Asked]) -> LogProbs | None:
    """Natural logarithms, of the distribution before temperature and filters."""
    counts = {row: sampling.logprobs for row, (sampling, _) in asked.items() if sampling.logprobs is not None}
    if not counts:
        return None
    index = ints_to_device(list(counts), logits_RV.device)
    all_NV = torch.log_softmax(logits_RV.index_select(0, index), -1)
    top = all_NV.topk(min(max(counts.values()), all_NV.shape[1]), -1)
    chosen_N = all_NV.gather(1, tokens_R.index_select(0, index)[:, None])[:, 0]
    return LogProbs(counts, chosen_N, top.values, top.indices)


def log_prob_lists(log_probs: LogProbs) -> dict[int, tuple[float, tuple[TopLogprob, ...]]]:
    """Row -> (log probability of the token, the likeliest tokens), on the host."""
    chosen, top, top_ids = log_probs.chosen_N.tolist(), log_probs.top_NK.tolist(), log_probs.top_ids_NK.tolist()
    return {
        row: (chosen[n], tuple(map(TopLogprob, top_ids[n][:count], top[n][:count])))
        for n, (row, count) in enumerate(log_probs.counts.items())
    }
