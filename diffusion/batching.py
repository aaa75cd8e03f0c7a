"""How many states share a step: as many as are faster together than one after another, which is learned by trying.

Steps of one row cannot tell what they would save together, since all that they do grows with the rows; and no line
fits a device that fills up. So whole steps are compared, however they were cut, per stage, size of a row (a power of
two) and number of rows (likewise): log(seconds per unit of work) = level + gain. The level is common to all numbers of
rows, so that a device which slows down changes no gain; one row gains nothing.

Numbers of rows are the arms of a bandit. What was tried too seldom is tried, fewest rows first; and tries need only
grow with the logarithm of all steps (Lai and Robbins, Asymptotically efficient adaptive allocation rules, 1985): a few
at first, and one more whenever all steps have doubled, in case they misled or the device has changed.
"""

import math
from collections.abc import Hashable, Sequence

from hemiola.core.step import Work, total_work

from .open_batch import OpenBatch
from .state import DiffusionState

LEAST_SAVING = 0.02
"""Share of their time that rows must save together: waiting for others is not worth less."""
MAX_ROWS = 16

_NUM_FIRST = 2  # steps of each arm that do not count: what they build and allocate is there for later ones
_FEWEST_TRIES = 4
# Of the logarithm of a step's seconds, as variances: what it scatters by, what the level drifts by from step to step
# and the gains, and what they may be before anything was seen.
_NOISE, _DRIFT, _GAIN_DRIFT, _LEVEL, _GAIN = 0.1**2, 0.01**2, 0.001**2, 10.0**2, 0.15**2
_OUTLIER = 3.0  # no error counts for more than so many times what is expected: a step that stalled


class Arms:
    """What is known of the steps of one stage and size, by the bits of their number of rows: 1, 2-3, 4-7 and so on.

    A Kalman filter over the level and, of every arm but the first, the gain.
    """

    def __init__(self) -> None:
        self._tries = [0] * MAX_ROWS.bit_length()
        self._means = [0.0 for _ in self._tries]
        variances = [_LEVEL] + [_GAIN] * (len(self._tries) - 1)
        self._covariance = [[v if i == j else 0.0 for j in range(len(variances))] for i, v in enumerate(variances)]

    def saving(self, num_rows: int) -> float | None:
        """The share of their time that so many rows save together, less what is uncertain; None: it is to be tried.

        So what is new is given a chance, and what was tried must have shown that it pays.
        """
        arm = num_rows.bit_length() - 1
        wanted = max(_FEWEST_TRIES, math.log2(1 + sum(self._tries)))
        if self._tries[arm] - _NUM_FIRST < wanted:
            return None
        return 1 - math.exp(self._means[arm] + math.sqrt(self._covariance[arm][arm])) if arm else 0.0

    def learn(self, num_rows: int, seconds_per_unit: float) -> None:
        """From a step of so many rows."""
        arm = num_rows.bit_length() - 1
        self._tries[arm] += 1
        if self._tries[arm] <= _NUM_FIRST:
            return
        seen = {0, arm}  # what the step shows is the sum of these
        for i, row in enumerate(self._covariance):
            row[i] += _GAIN_DRIFT if i else _DRIFT
        projected = [sum(row[i] for i in seen) for row in self._covariance]
        variance = sum(projected[i] for i in seen) + _NOISE
        error = math.log(max(seconds_per_unit, 1e-12)) - sum(self._means[i] for i in seen)
        most = _OUTLIER * math.sqrt(variance)
        error = max(-most, min(error, most))
        self._means = [mean + p / variance * error for mean, p in zip(self._means, projected, strict=True)]
        self._covariance = [
            [c - p * q / variance for c, q in zip(row, projected, strict=True)]
            for row, p in zip(self._covariance, projected, strict=True)
        ]


class Batching:
    """Decides how many states share a step of one model, and learns from the steps that were taken."""

    def __init__(self) -> None:
        self._arms: dict[Hashable, Arms] = {}

    def choose(self, states: Sequence[DiffusionState]) -> Sequence[DiffusionState]:
        """The leading states that are faster together, or the first number of them that was not tried enough.

        Args:
            states: of one batch key, none with an open step, in the order in which they are served.
        """
        work, most = Work(), LEAST_SAVING
        for num, state in enumerate(states, 1):
            stage, row = _shared(state)
            work = work.plus(row)
            saving = self._of(stage, work).saving(num)
            if saving is None:
                return states[:num]
            if num > 1:
                if saving < most:
                    return states[: num - 1]
                most = saving
        return states

    def learn(self, step: OpenBatch, seconds: float) -> None:
        """From a whole step, which took that long on the device."""
        if step.stage.name == "encode":
            return
        work = total_work(steps.rest[0] for steps in step.steps.values())
        self._of(step.stage.name, work).learn(work.rows, seconds / _units(work))

    def forget(self) -> None:
        """Begins anew."""
        self._arms.clear()

    def _of(self, stage: str, work: Work) -> Arms:
        """For rows of the mean size."""
        return self._arms.setdefault((stage, (_units(work) // work.rows).bit_length()), Arms())


def _shared(state: DiffusionState) -> tuple[str, Work]:
    """The stage by which is decided whether the state shares a step, and its work there.

    Those are encoded together that are to be denoised together: were they encoded one by one, the first would be
    through all its steps before the next could share any.
    """
    if state.phase == "encode":
        return "denoise", state.job.denoise.rest[0]
    return state.phase, state.work


def _units(work: Work) -> int:
    return work.new_tokens + work.pixels + 1
