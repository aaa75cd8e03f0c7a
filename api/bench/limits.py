"""What a device can do at most, measured in the same run: bytes and products per second; and what a step needs."""

import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hemiola.core.hub import ModelSource

from ..engine import Engine

_REPEATS = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Fields: bytes read and written per second, and floating-point operations per second."""

    copies: float
    products: float

    @property
    def words(self) -> str:
        """For people."""
        return (
            f"limits measured here: copies {self.copies / 1e12:.3g} TB/s, products {self.products / 1e12:.3g} TFLOP/s"
        )


def measure_limits(threads: int) -> Limits:
    """Of the device that an engine would choose, in its dtype; before there is one, for it takes all the memory."""
    torch.set_num_threads(threads)
    has_gpu = torch.cuda.is_available()
    device, dtype = torch.device("cuda:0" if has_gpu else "cpu"), torch.bfloat16 if has_gpu else torch.float32
    limits = Limits(copy_rate(device), matmul_rate(device, dtype))
    free_memory(device)
    return limits


def free_memory(device: torch.device) -> None:
    """Gives back what nobody refers to any more, such as an engine that has ended."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def copy_rate(device: torch.device) -> float:
    """Bytes read and written per second by a copy of a large buffer."""
    nbytes = (1 << 29) if device.type == "cuda" else (1 << 25)
    source = torch.empty(nbytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * nbytes / _best_s(lambda: target.copy_(source), device)


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a large matrix product of random numbers."""
    size = 8192 if device.type == "cuda" else 768
    left, right = (torch.randn(size, size, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
    return 2 * size**3 / _best_s(lambda: left @ right, device)


def _best_s(run: Callable[[], Tensor], device: torch.device) -> float:
    """The best of some runs: a limit, not what is usual."""
    best = float("inf")
    for _ in range(_REPEATS):
        synchronize(device)
        start = time.perf_counter()
        run()
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return best


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def decode_bytes(engine: Engine, source: ModelSource, rows: int, context: int) -> int:
    """Bytes that a decode step must read: weights without the table of embeddings, and keys and values of all rows."""
    config = json.loads((Path(source.path) / "config.json").read_text(encoding="utf-8"))
    dtype = getattr(torch, engine.loads.config.dtype)
    weights = engine.loads.weights[source.name].bytes_as(engine.loads.config.dtype)
    if not config.get("tie_word_embeddings", False):
        weights -= config["vocab_size"] * config["hidden_size"] * dtype.itemsize
    cache = engine.composition.languages[source.name].kv_cache
    return weights + rows * context * cache.page_bytes // cache.page_len
