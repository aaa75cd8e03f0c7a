"""What every Triton backend needs of where it runs, and its kernels, which only import where Triton is installed."""

import importlib
import importlib.util
from functools import cache
from typing import Any

from .registry import Target

_OLDEST = (8, 0)  # the first with bfloat16


def why_not(target: Target) -> str | None:
    """See `Backend`."""
    if target.device_type != "cuda":
        return "it is for CUDA devices"
    if target.capability is not None and target.capability < _OLDEST:
        return "it needs compute capability 8.0"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    return None


@cache
def kernels_of(package: str) -> Any:
    """The module `triton_kernels` of an operation's package."""
    return importlib.import_module(f"{package}.triton_kernels")


def power_of_two(size: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, size - 1).bit_length()


def num_warps(num_elements: int) -> int:
    """For a tile that is kept in registers: 16 elements a thread, as far as blocks may grow."""
    return min(16, max(1, num_elements // 512))
