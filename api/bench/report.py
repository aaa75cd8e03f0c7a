"""What a benchmark says: scenarios with a figure, a baseline of the same unit, and the ratio that was promised."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison.

    Fields:
        figure, baseline: in `unit`.
        ratio: how many times better the figure is than the baseline.
        target: the ratio that was promised; None where a figure is only reported.
    """

    name: str
    figure: float
    unit: str
    baseline: float
    ratio: float
    target: float | None


def rate(name: str, figure: float, unit: str, baseline: float, target: float | None) -> Scenario:
    """A scenario where more is better."""
    return Scenario(name, figure, unit, baseline, figure / baseline, target)


def cost(name: str, figure: float, unit: str, baseline: float, target: float | None) -> Scenario:
    """A scenario where less is better."""
    return Scenario(name, figure, unit, baseline, baseline / figure, target)


@dataclass(frozen=True, slots=True)
class Report:
    """All scenarios of a benchmark and where they were measured. `notes` are lines below the table."""

    name: str
    machine: str
    dtype: str
    threads: int
    scenarios: tuple[Scenario, ...]
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """The smallest ratio over its target: below 1 a promise is broken. 1 where nothing was promised."""
        return min((s.ratio / s.target for s in self.scenarios if s.target is not None), default=1.0)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "ratio": self.ratio})

    def show(self) -> None:
        table = Table("scenario", "figure", "baseline", "ratio", "target", "", title=f"bench {self.name}")
        for s in self.scenarios:
            verdict = "" if s.target is None else "ok" if s.ratio >= s.target else "MISSED"
            target = "" if s.target is None else f"{s.target:g}x"
            figure, baseline = (f"{value:,.4g} {s.unit}" for value in (s.figure, s.baseline))
            table.add_row(s.name, figure, baseline, f"{s.ratio:.2f}x", target, verdict)
        console = Console()
        console.print(table)
        for note in self.notes:
            console.print(note, highlight=False, soft_wrap=True)
        console.print(f"{self.machine}, {self.dtype}, {self.threads} thread(s); ratio {self.ratio:.3f}")


def machine_name() -> str:
    """The device in words, with the versions that matter."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name()
    return f"{device}, torch {torch.__version__}, Python {platform.python_version()}"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def in_turn(runs: Sequence[Callable[[], float]], repeats: int) -> list[float]:
    """Each run's median figure over `repeats` rounds of all runs one after the other, after one round of warm-up."""
    for run in runs:
        run()
    rounds = [[run() for run in runs] for _ in range(repeats)]
    return [statistics.median(figures) for figures in zip(*rounds, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
