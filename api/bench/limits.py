"""What a device can do at most, measured in the same run: bytes and products per second; and what a step needs."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from hemiola.core.hub import ModelSource

from ..engine import Engine

_REPEATS = 20


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
