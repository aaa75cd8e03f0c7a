"""Triton's compiler as a typed decorator. Imports only where Triton is installed."""

from collections.abc import Callable
from typing import Any, Protocol

import triton


class Kernel(Protocol):
    """Launched as `kernel[grid](*arguments)`; other kernels call it as a function."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]: ...

    def __call__(self, *arguments: Any) -> Any: ...


def kernel(*changing: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Compiles a function of pointers and numbers.

    Args:
        changing: integers that differ from step to step. Others are compiled in where they are 1 or divisible by 16:
            a step with numbers not met before would be compiled in its middle, even while a CUDA graph is captured.
    """
    made: Callable[[Callable[..., Any]], Kernel] = triton.jit(do_not_specialize=list(changing))
    return made
