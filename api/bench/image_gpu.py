"""Denoise steps of a pipeline of published size, cut into groups of blocks as always, against the device's multipliers.

The limit of a step is the time that its matrix products and attention take at the rate of one large product.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from hemiola.core.errors import InvalidRequest

from ..front.media import parse_size
from ..front.terms import CallTerms, engine_clock
from .asked import PROMPT, asked_of, check_media, check_models
from .denoisers import Shape, diffusers_step, shape_of, step_flops
from .limits import free_memory, measure_limits, synchronize
from .report import Report, cost, machine_name, percentile
from .timed import TimedEngine, denoise_gaps_ms, graphs_of, within

# Of a large product's rate: the blocks alone reach 0.77 on an H200 at 1024 px, less a tenth.
TARGET = 0.7


def run(
    *,
    repeats: int,
    threads: int,
    models: Sequence[str] = ("dummy:flux-dev",),
    against: str | None = None,
    size: str | None = None,
    steps: int = 8,
) -> Report:
    """One picture or clip after another; the first step of each is left out."""
    if against not in (None, "diffusers"):
        raise InvalidRequest("against", f"Invalid 'against': '{against}'. Allowed: diffusers.")
    with asked_of(models) as calls:
        check_models(calls, models, texts=0, media=1)
        check_media(calls, size, steps + 1)
    limits = measure_limits(threads)
    with TimedEngine(*models, threads=threads) as engine:
        front, config = engine.media(), engine.loads.config
        source = next(each for each in engine.loads.served if each.name == front.name)
        device, dtype = torch.device(config.device), getattr(torch, config.dtype)
        begin = engine_clock()
        ids, shape = _denoise(engine, repeats, steps + 1, size)
        gaps = denoise_gaps_ms(engine.denoise_times, ids)
        groups = [r for r in within(engine.trace, (begin, engine_clock()), front.name) if r.phase == "denoise"]
        per_step = len(groups) / (repeats * (steps + 1))
        graphs = graphs_of(engine, front.name)
    del engine
    free_memory(device)
    median = percentile(gaps, 0.5)
    what = f"{shape.width}x{shape.height}" + (f"x{shape.num_frames}" if shape.num_frames > 1 else "")
    what += f", {shape.branches} branch{'es' if shape.branches > 1 else ''}"
    flops = step_flops(source, shape)
    scenarios = [
        cost(
            f"denoise step, {what}, median, against one large product",
            median,
            "ms",
            flops / limits.products * 1e3,
            TARGET if config.is_gpu else None,
        ),
        cost("  p99 against the median", percentile(gaps, 0.99), "ms", median, None),
    ]
    if against is not None:
        theirs = _diffusers_ms(diffusers_step(source, shape, device, dtype), device, steps)
        scenarios.append(cost("denoise step against diffusers' transformer", median, "ms", theirs, None))
    num_blocks = sum(group.work.blocks for group in groups) / (repeats * (steps + 1))
    notes = (
        f"{source.name}: {flops / 1e12:.3g} TFLOP a step, {num_blocks:.0f} blocks a step; {graphs}",
        f"groups of blocks a step: {per_step:.3g}",
        limits.words,
    )
    return Report("image-gpu", machine_name(), config.dtype, threads, tuple(scenarios), notes)


def _denoise(engine: TimedEngine, count: int, steps: int, size: str | None) -> tuple[list[str], Shape]:
    """Runs them one by one; their ids, and the shape of each."""
    front = engine.media()
    ids: list[str] = []
    defaults = front.edge.defaults
    width, height = parse_size(size) if size is not None else (defaults.width, defaults.height)
    for seed in range(count):
        stream = engine.stream_media(PROMPT, front, size=(width, height), num_inference_steps=steps, seed=seed)
        stream.result()
        ids += stream.request_ids
    (request,) = front.requests(PROMPT, CallTerms(), size=(width, height))
    text_len = max(map(len, request.token_ids.values()))
    return ids, shape_of(front.edge, width, height, defaults.num_frames, text_len)


def _diffusers_ms(step: Callable[[], object], device: torch.device, steps: int) -> float:
    step()
    times = []
    for _ in range(steps):
        synchronize(device)
        start = time.perf_counter()
        step()
        synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)
