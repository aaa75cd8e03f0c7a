"""Where things lie in a packed tensor, as hashable facts and as index tensors.

Index tensors are made by the device alone: a copy of a Python list would make the host wait for all that was launched.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """A run of neighbours. Unlike a slice, it can be hashed by every Python."""

    start: int
    stop: int

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


def repeated(values: Sequence[int], counts: Sequence[int], device: torch.device) -> Tensor:
    """int64 [sum(counts)]: each value as often as its count says."""
    runs = groupby(zip(values, counts, strict=True), key=lambda pair: pair[0])
    sizes = [(value, sum(count for _, count in run)) for value, run in runs]
    return torch.cat([torch.full((size,), value, dtype=torch.int64, device=device) for value, size in sizes])
