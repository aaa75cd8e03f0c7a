"""What torch's allocator keeps of a GPU for later allocations, and when it has to give that back.

Each stream has free blocks of its own, so that each share of the SMs keeps as much as its largest step took. Where an
allocation fails, torch gives all of them back and tries again; but not while a graph is captured, and not to others.
"""

import logging
import re
import traceback

import torch

from .errors import StepOutOfMemory

log = logging.getLogger(__name__)

CAPTURE_BYTES = 4 << 30
"""Where less is free, caches are given back before a capture: it may take some GiB, and gets none of them."""
_WORTH_BYTES = 256 << 20
_TRIED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_FREE = re.compile(r"of which ([\d.]+ \w+) is free")


class Caches:
    """Of one device. On a CPU there are none."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rest = 0  # what stayed the last time: other graphs' memory

    def make_room(self, nbytes: int = CAPTURE_BYTES) -> None:
        """Gives them back if less than that is free, and there is something to give. May wait for the device."""
        if self._device.type == "cpu":
            return
        free, _ = torch.cuda.mem_get_info(self._device)
        if free < nbytes and self._cached() > self._rest + _WORTH_BYTES:
            self.give_back()

    def give_back(self) -> None:
        if self._device.type == "cpu":
            return
        torch.cuda.empty_cache()
        self._rest = self._cached()

    def give_all_back(self) -> None:
        """Pinned host memory, too: nobody here needs any more of it. On a device that is lost nothing can be had."""
        try:
            self.give_back()
        except RuntimeError:
            log.warning("The memory of %s cannot be given back.", self._device, exc_info=True)
        empty_host_cache = getattr(torch.accelerator, "empty_host_cache", None)  # since torch 2.12
        if self._device.type != "cpu" and empty_host_cache is not None:
            empty_host_cache()

    def _cached(self) -> int:
        return int(torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device))


def out_of_memory(error: torch.OutOfMemoryError, model: str, lower: str) -> StepOutOfMemory:
    """The error for the user. What failed forgets its tensors, which the traceback would hold.

    Args:
        lower: what of a request takes less memory if it is lowered, for people.
    """
    traceback.clear_frames(error.__traceback__)
    said = str(error)
    tried, free = _TRIED.search(said), _FREE.search(said)
    wanted = f"{tried[1]} more" if tried else "more"
    left = f", and {free[1]} is free" if free else ""
    return StepOutOfMemory(
        f"A step of '{model}' needs {wanted} of the device's memory than is to be had{left}. "
        f"Lower {lower}, or the engine's 'memory_bytes', which leaves more beside the arena."
    )
