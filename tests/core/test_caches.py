"""Too little of a device's memory: what is said of it, and when torch's caches are given back."""

import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hemiola.core.caches import CAPTURE_BYTES, Caches, out_of_memory
from hemiola.core.config import NUM_PREPARED_OPERATORS, bound_prepared_operators
from hemiola.core.device import InFlight
from hemiola.core.errors import CannotFit, StepOutOfMemory
from hemiola.core.on_lane import OnLane
from hemiola.core.step import Slot
from hemiola.core.warm_up import WarmUp

MIB = 1 << 20
SAID = (
    "CUDA out of memory. Tried to allocate 878.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 773.12 MiB is "
    "free. Including non-PyTorch memory, this process has 139.03 GiB memory in use."
)
SLOT = Slot("media", 1.0, 1, 0.0)


class FakeGpu:
    """Memory of a device, in the place of torch's: what is free, cached and given back."""

    def __init__(self, patch: pytest.MonkeyPatch, free: int, cached: int, kept: int = 0) -> None:
        self.free, self.cached, self.kept, self.num_given_back = free, cached, kept, 0
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (self.free, 1 << 40))
        patch.setattr(torch.cuda, "memory_reserved", lambda device: 1000 * MIB + self.cached)
        patch.setattr(torch.cuda, "memory_allocated", lambda device: 1000 * MIB)
        patch.setattr(torch.cuda, "empty_cache", self.empty)

    def empty(self) -> None:
        self.num_given_back += 1
        self.free += self.cached - self.kept
        self.cached = self.kept


def test_before_a_capture_caches_are_given_back_only_where_room_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, free=CAPTURE_BYTES + MIB, cached=900 * MIB)
    caches = Caches(torch.device("cuda"))
    caches.make_room()
    assert gpu.num_given_back == 0
    gpu.free = 100 * MIB
    caches.make_room()
    assert gpu.num_given_back == 1 and gpu.free == 1000 * MIB


def test_what_other_graphs_keep_is_not_asked_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, free=100 * MIB, cached=3000 * MIB, kept=2800 * MIB)
    caches = Caches(torch.device("cuda"))
    for _ in range(3):
        caches.make_room()
    assert gpu.num_given_back == 1
    gpu.cached += 500 * MIB
    caches.make_room()
    assert gpu.num_given_back == 2


def test_a_cpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, free=0, cached=900 * MIB)
    caches = Caches(torch.device("cpu"))
    caches.make_room()
    caches.give_back()
    assert gpu.num_given_back == 0


class Short:
    """A runner whose steps need more memory than there is."""

    model, lane = "wan", "media"

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self.held: Any = None

    def launch(self, batch: Any, slot: Slot) -> Any:
        held = torch.ones(3)
        self.held = weakref.ref(held)
        raise torch.OutOfMemoryError(SAID)

    def cancel(self, batch: Any) -> None:
        self._told("cancelled")

    def warm_ups(self) -> list[WarmUp]:
        return [WarmUp("wan: 832x480", 1.0, lambda: self.launch(None, SLOT))]


def test_a_step_without_memory_says_how_much_and_what_to_lower_and_gives_caches_back_after_it_is_cancelled() -> None:
    told: list[str] = []

    class Told(Caches):
        def give_back(self) -> None:
            told.append("given back")

    in_flight = InFlight()
    runner = Short(told.append)
    on_lane: OnLane[Any] = OnLane(runner, in_flight, Told(torch.device("cpu")))  # type: ignore[arg-type]
    with pytest.raises(StepOutOfMemory) as caught:
        on_lane.launch(None, SLOT)  # type: ignore[arg-type]
    error = caught.value
    assert error.code == CannotFit.code == "insufficient_memory"
    for part in ("'wan'", "878.00 MiB", "773.12 MiB", "size", "frames", "'memory_bytes'"):
        assert part in error.message
    assert runner.held is not None and runner.held() is None, "a traceback holds the step's tensors"
    assert told == []
    for _ in range(2):
        on_lane.cancel(None)  # type: ignore[arg-type]
    assert told == ["cancelled", "given back", "cancelled"]


def test_a_warm_up_without_memory_says_so_too() -> None:
    on_lane: OnLane[Any] = OnLane(Short(lambda word: None), InFlight())  # type: ignore[arg-type]
    [warm_up] = on_lane.warm_ups()
    with pytest.raises(StepOutOfMemory, match=r"878\.00 MiB"):
        warm_up.run()


def test_an_error_without_figures_is_told_without_them() -> None:
    message = out_of_memory(torch.OutOfMemoryError("no"), "m", "the size").message
    assert message.startswith("A step of 'm' needs more of the device's memory than is to be had. Lower the size")


# In a process of its own, for whatever ran before has prepared operators: MiB that the C library has given out since.
MANY_ROWS = """
import ctypes
import torch
from hemiola.core.config import bound_prepared_operators
from hemiola.kernels.linear.onednn import OneDnnLinear

class Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost").split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Figures
bound_prepared_operators()
linear, x = OneDnnLinear(torch.ones(64, 64)), torch.ones(512, 64)
linear(x[:2])
before = library.mallinfo2().uordblks
for num_rows in range(2, 500):
    linear(x[:num_rows])
print((library.mallinfo2().uordblks - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the GNU C library")
def test_a_cpu_keeps_no_operator_for_every_number_of_rows_that_ever_came() -> None:
    """Fresh prompts of ever other lengths once made a process grow by hundreds of MiB; these here by 275."""
    variables = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"}
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    run = subprocess.run(
        [sys.executable, "-c", MANY_ROWS], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert int(run.stdout) < 60


def test_a_bound_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    bound_prepared_operators()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    assert os.environ["LRU_CACHE_CAPACITY"] == str(NUM_PREPARED_OPERATORS)
