"""Request rows: where the device finds a running request's page table and its newest token.

A row is taken at a request's first step and given back when it ends. Page tables are kept as a host array that steps
slice; newest tokens stay on the device, so that a step can follow another before the host has seen its tokens.
"""

import numpy as np
import torch

from ..core.device import InFlight
from ..core.errors import StepFailed
from ..kernels.attention import Ints

_FIRST_ROWS = 16
_DEVICE_ROWS = 1 << 16  # half a megabyte: it never grows, since graphs know where it lies
_FIRST_PAGES = 32


class RowTable:
    """Rows of all running requests of one model.

    Fields:
        pages: [row, page] page ids.
        newest: [row] the token that was sampled last, int64 on the device.
        nobody: a row of `newest` that is never anybody's.
    """

    def __init__(self, device: torch.device, clock: InFlight) -> None:
        self.pages: Ints = np.zeros((_FIRST_ROWS, _FIRST_PAGES), dtype=np.int64)
        self.newest = torch.zeros(_DEVICE_ROWS + 1, dtype=torch.int64, device=device)
        self.nobody = _DEVICE_ROWS
        self._free = list(reversed(range(_FIRST_ROWS)))
        self._clock = clock

    def take(self) -> int:
        """A free row; the table grows when there is none.

        Raises:
            StepFailed: more requests run than can.
        """
        if not self._free:
            count = len(self.pages)
            if count == _DEVICE_ROWS:
                raise StepFailed(f"More than {_DEVICE_ROWS} requests run at once.")
            self.pages = np.concatenate((self.pages, np.zeros_like(self.pages)))
            self._free = list(reversed(range(count, 2 * count)))
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """Free again once no step in flight may write to it."""
        self._clock.retire(lambda: self._free.append(row))

    def set_pages(self, row: int, first: int, pages: list[int]) -> None:
        """Writes page ids from position `first` on."""
        end = first + len(pages)
        while end > self.pages.shape[1]:
            self.pages = np.concatenate((self.pages, np.zeros_like(self.pages)), 1)
        self.pages[row, first:end] = pages
