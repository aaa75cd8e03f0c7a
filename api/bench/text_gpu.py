"""Decode and prefill of a language model of published size, against what the device's memory and multipliers allow.

The limit of a decode step is the time to read the weights and all keys and values once, at the rate of a large copy.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hemiola.core.errors import InvalidRequest
from hemiola.core.hub import ModelSource

from .asked import asked_of, check_models, check_prompts, check_rows
from .limits import decode_bytes, free_memory, measure_limits, synchronize
from .report import Report, Scenario, cost, machine_name, percentile, rate, seconds
from .timed import LEAST_TOKENS, TimedEngine, decode, fresh_prompts, graphs_of, idle_share, prefill

# Of the copy rate: what a decode step captured as one graph reaches on an H200 is 0.81 (64 rows), less a tenth.
TARGET = 0.73


def run(
    *,
    repeats: int,
    threads: int,
    models: Sequence[str] = ("dummy:llama-8b",),
    against: str | None = None,
    rows: Sequence[int] = (64, 16),
    context: int = 2048,
    tokens: int = 96,
) -> Report:
    """Decode steps through the engine at each number of rows, then, with `against`, transformers in the same run."""
    if against not in (None, "transformers"):
        raise InvalidRequest("against", f"Invalid 'against': '{against}'. Allowed: transformers.")
    with asked_of(models) as calls:
        check_models(calls, models, texts=1, media=0)
        check_prompts(calls, context, tokens, least_tokens=LEAST_TOKENS)
    rng = random.Random(0)
    limits = measure_limits(threads)
    scenarios: list[Scenario] = []
    steps_ms: dict[int, float] = {}
    with TimedEngine(*models, threads=threads) as engine:
        source = next(each for each in engine.loads.served if each.name == engine.text().name)
        config = engine.loads.config
        device, dtype = torch.device(config.device), getattr(torch, config.dtype)
        check_rows(engine, source.name, rows, context + tokens)
        params = engine.loads.weights[source.name].num_params
        for num_rows in rows:
            shape = f"{num_rows} rows x {context}"
            found = [_measure(engine, num_rows, context, tokens, rng) for _ in range(repeats)]
            median, p99, idle, prefill_rate = (statistics.median(each) for each in zip(*found, strict=True))
            limit = decode_bytes(engine, source, num_rows, context) / limits.copies * 1e3
            target = TARGET if config.is_gpu else None
            scenarios += [
                cost(f"decode step, {shape}, median, against the copy rate", median, "ms", limit, target),
                cost(f"  p99 against the median, {shape}", p99, "ms", median, None),
                rate(f"  language lane at work, {shape}", 100 * (1 - idle), "%", 100.0, None),
                rate(f"  tokens a second, {shape}", num_rows * 1e3 / median, "tok/s", num_rows * 1e3 / limit, None),
                rate(f"  prefill, {shape}", prefill_rate, "tok/s", limits.products / (2 * params), None),
            ]
            steps_ms[num_rows] = median
        notes = (f"{source.name}: {params / 1e9:.3g} B parameters, {config.dtype}; {graphs_of(engine, source.name)}",)
    del engine
    free_memory(device)
    if against is not None:
        scenarios += _transformers(source, device, dtype, sorted({1, *rows}), context, steps_ms)
    return Report("text-gpu", machine_name(), config.dtype, threads, tuple(scenarios), (*notes, limits.words))


def _measure(
    engine: TimedEngine, rows: int, context: int, tokens: int, rng: random.Random
) -> tuple[float, float, float, float]:
    """Median and p99 of a decode step in ms, idle share of the lane, prefilled tokens per second."""
    prompts = fresh_prompts(engine, rows, context, rng)
    prefill_rate = prefill(engine, prompts)
    found = decode(engine, prompts, tokens)
    idle = idle_share(engine.trace, found.window, engine.text().name)
    return percentile(found.gaps_ms, 0.5), percentile(found.gaps_ms, 0.99), idle, prefill_rate


def _transformers(
    source: ModelSource,
    device: torch.device,
    dtype: torch.dtype,
    rows: Sequence[int],
    context: int,
    steps_ms: dict[int, float],
) -> list[Scenario]:
    """A step of `generate` with the same shapes; of ours at one row nothing is known."""
    model = _load(source.path, device, dtype, is_dummy=source.load_format == "dummy")
    scenarios = []
    for num_rows in rows:
        theirs = _generate_step_ms(model, num_rows, context, device)
        ours = steps_ms.get(num_rows)
        shape = f"{num_rows} rows x {context}"
        if ours is None:
            scenarios.append(
                Scenario(f"transformers alone: a step of generate, {shape}", theirs, "ms", theirs, 1.0, None)
            )
        else:
            scenarios.append(cost(f"decode step against transformers' generate, {shape}", ours, "ms", theirs, None))
    return scenarios


def _load(folder: Path, device: torch.device, dtype: torch.dtype, *, is_dummy: bool) -> Any:
    if not is_dummy:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device).eval()
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=dtype).to(device).eval()


def _generate_step_ms(model: Any, rows: int, context: int, device: torch.device, num_tokens: int = 32) -> float:
    """From the difference of a long and a short generation, so that the prompt is not counted."""
    ids = torch.randint(0, model.config.vocab_size, (rows, context), device=device)

    def generate(count: int) -> Callable[[], None]:
        def run() -> None:
            with torch.inference_mode():
                model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=count,
                    min_new_tokens=count,
                    do_sample=False,
                    pad_token_id=0,
                )
            synchronize(device)

        return run

    generate(2)()
    long, short = (statistics.median(seconds(generate(count)) for _ in range(3)) for count in (num_tokens, 2))
    return (long - short) / (num_tokens - 2) * 1e3
