"""The random numbers of a request: one uniform per token, a function of its seed and the token's number alone.

So a request's tokens never depend on what else runs. Numbers come from SplitMix64 (Steele, Lea and Flood, 2014),
applied to the seed and then to the counter.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def uniforms(seeds: Sequence[int], counters: Sequence[int]) -> npt.NDArray[np.float64]:
    """[R] multiples of 2^-32 in [0, 1), one per seed and counter."""
    seed_R = np.array([seed & _MASK for seed in seeds], dtype=np.uint64)
    counter_R = np.array(counters, dtype=np.uint64)
    mixed_R = _mix(_mix(seed_R + _GOLDEN) + (counter_R + np.uint64(1)) * _GOLDEN)
    return (mixed_R >> np.uint64(32)).astype(np.float64) * 2.0**-32


def _mix(x_R: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x_R = (x_R ^ (x_R >> np.uint64(30))) * _MIX_1
    x_R = (x_R ^ (x_R >> np.uint64(27))) * _MIX_2
    return x_R ^ (x_R >> np.uint64(31))
