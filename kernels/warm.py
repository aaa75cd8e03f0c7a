"""Compiles ahead what a backend would otherwise compile in the first call that needs it.

FlashInfer's attention: one kernel family per head size, dtype, and whether layers have a window or a cap. Head counts,
scale, window length and page length do not matter. Compiling one takes 20 (fa2) to 90 seconds (fa3) on all cores; what
is compiled lies in FlashInfer's own cache on disk.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import torch

from .attention import PAGED_ATTENTION, RAGGED_ATTENTION, ScoreOptions
from .attention.flashinfer_wrapper import chunk_kernel
from .registry import Target


def warm_attention(target: Target, layers: Iterable[ScoreOptions]) -> tuple[str, ...]:
    """Compiles what paged and ragged attention of these layers will use on the current CUDA device. Returns the names
    of what is there then; on targets that nothing is compiled for there are none.

    Args:
        target: with its head_dim.
    """
    backends = {operation.resolve(target).name for operation in (PAGED_ATTENTION, RAGGED_ATTENTION)}
    return _warm_flashinfer(target, layers) if "flashinfer" in backends else ()


def _warm_flashinfer(target: Target, layers: Iterable[ScoreOptions]) -> tuple[str, ...]:
    from flashinfer.jit import gen_batch_prefill_module

    if target.head_dim is None:
        raise ValueError("Kernels cannot be compiled for a target without a head size.")
    # Decodes run on fa2's tensor cores, wherever chunks do. The slowest to compile come first.
    kernels = sorted({"fa2", chunk_kernel(torch.device("cuda"))}, reverse=True)
    kinds = sorted({(options.window is not None, options.softcap is not None) for options in layers})
    specs = [
        gen_batch_prefill_module(
            kernel,
            target.dtype,
            target.dtype,
            target.dtype,
            torch.int32,
            target.head_dim,
            target.head_dim,
            0,  # no positional encoding
            has_window,
            has_softcap,
            False,  # scores are summed up in float32
        )
        for kernel in kernels
        for has_window, has_softcap in kinds
    ]
    # Each is built as FlashInfer's first use would build it (its build of many at once leaves no log for that, so that
    # they would be built again), by about ten compilers of 2 to 4 GB each.
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 5)) as pool:
        list(pool.map(lambda spec: spec.is_aot or spec.build(verbose=False), specs))
    return tuple(spec.name for spec in specs)
