"""Which of several choices a model likes best, in four readings of the exact log probabilities of their tokens.

The first of them wins, if several are equal. Knows no engine.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from ..results import Score

Scoring = Literal["mean", "sum", "greedy", "unconditional"]


def by_mean(scores: Sequence[Score]) -> Score:
    """Likeliest per token, so that long choices are not at a disadvantage."""
    return max(scores, key=lambda score: score.mean)


def by_sum(scores: Sequence[Score]) -> Score:
    """Likeliest as a whole."""
    return max(scores, key=lambda score: score.total)


def by_gain(scores: Sequence[Score]) -> Score:
    """The one that the prompt makes likelier, per token, than it is anyway.

    Pointwise mutual information per token: Holtzman et al. 2021, "Surface Form Competition", https://arxiv.org/abs/2104.08315
    """
    return max(scores, key=lambda score: score.gain)


def greedily(scores: Sequence[Score]) -> Score:
    """Token by token, the likeliest next token that leads to a choice, as if nothing else could be said.

    Where one choice is the beginning of others, ending there counts as likely as its tokens were on average.
    """
    left = list(scores)
    depth = 0
    while len(left) > 1:
        ended = [score for score in left if len(score.tokens) == depth]
        going = [score for score in left if len(score.tokens) > depth]
        if not going:
            return ended[0]
        best = max(going, key=lambda score: score.logprobs[depth])
        if ended and ended[0].mean >= best.logprobs[depth]:
            return ended[0]
        left = [score for score in going if score.tokens[depth] == best.tokens[depth]]
        depth += 1
    return left[0]


SCORINGS: dict[Scoring, Callable[[Sequence[Score]], Score]] = {
    "mean": by_mean,
    "sum": by_sum,
    "greedy": greedily,
    "unconditional": by_gain,
}
