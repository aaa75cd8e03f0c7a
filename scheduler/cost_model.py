"""Predicts a step's seconds from its Work, and learns from every step that was collected.

One linear model per cost key, seconds = w . x, tracked by a Kalman filter over its weights (a random walk in w;
Haykin, Adaptive Filter Theory, chapter on Kalman filters), where x are a constant and the Work's fields in units that
keep them near one. Pure Python, some 20 microseconds an observation. Knows no model and no tensor.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from hemiola.core.step import Work

# Units of the features: a constant, then one per field of Work.
_SCALES = (1.0, 1.0, 1 / 64, 1 / 4096, 1 / 2**18, 1.0, 1 / 2**16, 1 / 2**20)
# Seconds per unit before anything was seen: roughly one CPU core.
_PRIOR = (1e-3, 2e-4, 1e-2, 1e-4, 1e-4, 1e-3, 1e-2, 1e-4)
_PRIOR_VARIANCE = tuple((100 * w) ** 2 for w in _PRIOR)
_DRIFT = 1e-5  # share of the prior variance that a weight's own variance regains per step that used it
_NOISE = 0.1  # a step's seconds scatter by about this share
_OUTLIER = 4.0  # a step this many times slower than predicted counts as if it were only this slow
_ERROR_MEMORY = 0.9
_LATELY = 9  # launches: few of them are held up, as by compiling
# Beyond this many times the largest work seen, a line fitted to small steps says little: see `_LinearModel.predict`.
_TRUSTED_RANGE = 2.0


def _features(work: Work) -> list[float]:
    return [1.0, *(value * scale for value, scale in zip(work, _SCALES[1:], strict=True))]


def _dot(a: list[float], b: list[float]) -> float:
    return sum(map(float.__mul__, a, b))


@dataclass(slots=True)
class _LinearModel:
    """Weights, their covariance, and how wrong predictions were (mean relative error).

    `peak` has the largest value seen of each feature, `peak_s` the seconds of the slowest step seen. `last` are the new
    tokens and the seconds of the last one.
    """

    weights: list[float] = field(default_factory=lambda: list(_PRIOR))
    covariance: list[list[float]] = field(
        default_factory=lambda: [[v if i == j else 0.0 for j in range(8)] for i, v in enumerate(_PRIOR_VARIANCE)]
    )
    num_steps: int = 0
    relative_error: float = 1.0
    peak: list[float] = field(default_factory=lambda: [0.0] * 8)
    peak_s: float = 0.0
    last: tuple[int, float] = (0, 0.0)

    def predict(self, x: list[float]) -> float:
        """Linear where steps like it were seen; far beyond, at least as if all time grew with the largest feature."""
        linear = _dot(self.weights, x)
        growth = max((value / seen for value, seen in zip(x, self.peak, strict=True) if seen), default=1.0)
        return max(linear, self.peak_s * growth) if growth > _TRUSTED_RANGE else linear

    def learn(self, x: list[float], seconds: float) -> None:
        for i, value in enumerate(x):
            if value:
                self.covariance[i][i] += _DRIFT * _PRIOR_VARIANCE[i]
        self.peak = list(map(max, self.peak, x))
        self.peak_s = max(self.peak_s, seconds)
        projected = [_dot(row, x) for row in self.covariance]
        scale = 1.0 / ((_NOISE * seconds) ** 2 + 1e-12 + _dot(projected, x))
        error = seconds - _dot(self.weights, x)
        self.weights = [w + p * scale * error for w, p in zip(self.weights, projected, strict=True)]
        self.covariance = [
            [c - p * scale * q for c, q in zip(row, projected, strict=True)]
            for row, p in zip(self.covariance, projected, strict=True)
        ]
        self.num_steps += 1


class LaneUse(NamedTuple):
    """What a step has of the device: a share of its SMs, and whether another lane is at work meanwhile."""

    sm_share: float = 1.0
    is_shared: bool = False

    def key(self, cost_key: Hashable) -> Hashable:
        """Under which the costs of such steps are learned: apart from those of steps that have the device alone."""
        return cost_key if self == ALONE else _Shared(cost_key, self)


ALONE = LaneUse()


class _Shared(NamedTuple):
    cost_key: Hashable
    use: LaneUse


@dataclass(slots=True)
class CostModel:
    """Seconds per (cost key, Work). A key that `LaneUse.key` made falls back on the key it was made of."""

    _models: dict[Hashable, _LinearModel] = field(default_factory=dict)
    _launches: dict[Hashable, deque[float]] = field(default_factory=dict)

    def knows(self, key: Hashable) -> bool:
        """Whether at least two steps of that key were seen; before, predictions are guesses."""
        model = self._models.get(key)
        if model is None and isinstance(key, _Shared):
            return self.knows(key.cost_key)
        return model is not None and model.num_steps >= 2

    def seconds(self, key: Hashable, work: Work) -> float:
        """Predicted device seconds of a step; always positive."""
        model = self._models.get(key)
        if model is None and isinstance(key, _Shared):
            return self.seconds(key.cost_key, work) / key.use.sm_share
        x = _features(work)
        return max(_dot(list(_PRIOR), x) if model is None else model.predict(x), 1e-6)

    def last(self, key: Hashable) -> tuple[int, float]:
        """New tokens and seconds of the last step of that key; nothing where none was seen."""
        model = self._models.get(key)
        return (0, 0.0) if model is None else model.last

    def launch_seconds(self, key: Hashable) -> float:
        """What the host needs to launch a step of that key, as lately; 0 where none was seen. None is over sooner."""
        return median(self._launches.get(key, (0.0,)))

    def observe_launch(self, key: Hashable, seconds: float) -> None:
        """Learns from a launch that waited for nothing, and after which the step was not over yet."""
        self._launches.setdefault(key, deque(maxlen=_LATELY)).append(seconds)

    def observe(self, key: Hashable, work: Work, seconds: float) -> None:
        """Learns from a collected step."""
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = _LinearModel()
        x = _features(work)
        predicted = max(model.predict(x), 1e-6)
        memory = _ERROR_MEMORY if model.num_steps > 1 else 0.0
        error = abs(seconds - predicted) / max(seconds, 1e-6)
        model.relative_error = memory * model.relative_error + (1 - memory) * error
        model.last = work.new_tokens, seconds
        model.learn(x, min(seconds, _OUTLIER * predicted) if model.num_steps >= 8 else seconds)

    def forget(self) -> None:
        """Begins anew: what was seen so far says nothing of what will come, for kernels were being compiled."""
        self._models.clear()
        self._launches.clear()

    def errors(self) -> dict[Hashable, tuple[int, float]]:
        """Per key: steps seen, and the recent mean relative error of predictions made before seeing them."""
        return {key: (model.num_steps, model.relative_error) for key, model in self._models.items()}
