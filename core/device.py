"""What a device is, where work on it is enqueued, and which launched steps are complete.

`InFlight` counts steps per lane and delays callbacks until the steps that were in flight are complete; bytes
retire through it. It does not know what a step does, nor who launches it. On a CPU there is one place for all work, a
step is complete when its launch returns, and nothing is ever in flight; `core.streams` has the same for CUDA.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from .step import Slot

Writer = tuple[str, int]
"""(lane, sequence) of a launch."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a device is.

    Fields:
        kind: `cpu` or `cuda`.
        name: for people.
        total_bytes: its memory; on a CPU what the machine has.
        num_units: SMs; on a CPU the cores this process may use.
    """

    kind: str
    name: str
    total_bytes: int
    num_units: int


def describe_device(device: str | torch.device) -> Device:
    """The description of a torch device."""
    device = torch.device(device)
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return Device("cuda", found.name, found.total_memory, found.multi_processor_count)
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Device("cpu", "CPU", total_bytes, len(os.sched_getaffinity(0)))


class InFlight:
    """Which steps were launched and are not complete, per lane. Lanes complete in order of their sequence.

    Fields:
        is_idle: nothing is in flight.
        num_completed: how often `completed` was called.
    """

    def __init__(self) -> None:
        self._running: dict[str, deque[int]] = {}
        self._retiring: deque[tuple[dict[str, int], Callable[[], object]]] = deque()
        self.is_idle = True
        self.num_completed = 0

    # Where device work is enqueued. On a CPU there is but one place.

    def on(self, lane: str) -> AbstractContextManager[None]:
        """What is enqueued inside comes behind the lane's steps: work for the lane's models between their steps."""
        return nullcontext()

    def launching(self, slot: Slot) -> AbstractContextManager[None]:
        """What is enqueued inside is the step that runs in this slot; it is in flight until `completed`."""
        return nullcontext()

    def finish(self, lane: str) -> None:
        """Waits until all that was enqueued for the lane is over. Raises what the device has broken down of, if it has:
        nothing can run on it any more."""

    def outside(self) -> AbstractContextManager[None]:
        """What is enqueued inside may touch anybody's bytes: it comes after all that is launched, on whatever lane,
        and before all that will be."""
        return nullcontext()

    # Which steps are in flight.

    def launched(self, lane: str, sequence: int) -> None:
        """A step is on its way."""
        running = self._running.setdefault(lane, deque())
        if running and sequence <= running[-1]:
            raise ValueError(f"Lane '{lane}' launched {sequence} after {running[-1]}: sequences must grow.")
        running.append(sequence)
        self.is_idle = False

    def completed(self, lane: str, sequence: int) -> None:
        """Steps of the lane up to `sequence` are complete; runs what waited for just that."""
        self.num_completed += 1
        running = self._running.get(lane, ())
        while running and running[0] <= sequence:
            running.popleft()
        self.is_idle = not any(self._running.values())
        while self._retiring and self._is_past(self._retiring[0][0]):
            self._retiring.popleft()[1]()

    def is_complete(self, writer: Writer) -> bool:
        """Whether that launch is complete (or never was in flight here)."""
        lane, sequence = writer
        running = self._running.get(lane)
        return not running or sequence < running[0]

    def retire(self, callback: Callable[[], object]) -> None:
        """Runs the callback once everything that is in flight now is complete: at once when nothing is."""
        if self.is_idle:
            callback()
        else:
            last = {lane: running[-1] for lane, running in self._running.items() if running}
            self._retiring.append((last, callback))

    def _is_past(self, last: dict[str, int]) -> bool:
        return all(self.is_complete(writer) for writer in last.items())
