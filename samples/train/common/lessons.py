"""The loop that trains a judge on real renders: replay a step, follow the clock, renew a part of the renders."""

from collections.abc import Callable

import torch
from torch import Tensor

from samples.train.common.training import Average, CapturedStep, Clock, MixedOptimizer, Schedule

LOG_EVERY = 500


def fit(
    run: Callable[[], Tensor],
    optimizer: MixedOptimizer,
    seconds: float,
    device: torch.device,
    *,
    average: Average,
    renew: Callable[[], object],
    renew_every: int,
    peak_rate: float = 2e-3,
    warmup_steps: int = 100,
) -> int:
    """Trains for that long and leaves the averaged weights in place; the number of steps.

    `run` makes one step (see CapturedStep) and gives its loss; `renew` replaces some of the renders that
    `run` draws from.
    """
    captured, clock, step = CapturedStep(run, device), Clock(), 0
    schedule = Schedule(seconds, peak_rate, warmup_steps, 0.6)
    while (elapsed := clock.elapsed) < seconds:
        optimizer.rate.fill_(schedule.rate(step, elapsed))
        loss = captured()
        if step == warmup_steps:
            average.restart()
        if step % LOG_EVERY == 0:
            print(f"judge step {step} {elapsed:.0f} s loss {loss.item():.4f}", flush=True)
        step += 1
        if step % renew_every == 0:
            renew()
    if step <= warmup_steps:
        average.restart()
    print(f"judge: {step} steps", flush=True)
    with torch.no_grad():
        torch._foreach_copy_(optimizer.parameters, average.values)
    return step
