"""Numbers about a running engine: counters, gauges and histograms in one registry that the engine owns.

Written by the loop's thread alone, a fraction of a microsecond an update; read by any thread. Prometheus' text format
(https://prometheus.io/docs/instrumenting/exposition_formats/) comes out; nothing here knows HTTP, models or torch.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
ERROR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

Sample = tuple[str, Sequence[tuple[str, str]], float]  # name suffix, labels beyond the family's, value


@dataclass(slots=True)
class Counter:
    """Only grows."""

    value: float = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount

    def samples(self) -> Iterator[Sample]:
        yield "_total", (), self.value


@dataclass(slots=True)
class Gauge:
    """Whatever it is at the moment."""

    value: float = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def samples(self) -> Iterator[Sample]:
        yield "", (), self.value


@dataclass(slots=True)
class Histogram:
    """Counts per bucket; `bounds` are upper bounds, inclusive, ascending, without infinity."""

    bounds: tuple[float, ...] = LATENCY_BUCKETS_S
    total: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """The upper bound of the bucket in which that share (0..1) of the values is reached; NaN when empty."""
        wanted, seen = share * self.count, 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return math.nan

    def samples(self) -> Iterator[Sample]:
        counts, seen = list(self.counts), 0
        for bound, count in zip((*self.bounds, math.inf), counts, strict=True):
            seen += count
            yield "_bucket", (("le", _number(bound)),), seen
        yield "_sum", (), self.total
        yield "_count", (), seen


class Metric(Protocol):
    """What a family holds one of for each combination of label values."""

    def samples(self) -> Iterator[Sample]: ...


M = TypeVar("M", bound=Metric)
F = TypeVar("F", bound="Family[Any] | Mirror")


class Family(Generic[M]):
    """All metrics of one name. Calling it with the labels' values gives the one; keep that where it is hot."""

    def __init__(self, name: str, kind: str, help_text: str, labels: Sequence[str], make: Callable[[], M]) -> None:
        self.name = name
        self.kind = kind
        self.help_text = help_text
        self.labels = tuple(labels)
        self._make = make
        self._metrics: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        metric = self._metrics.get(values)
        if metric is None:
            assert len(values) == len(self.labels), f"{self.name} has labels {self.labels}, not {values}"
            metric = self._metrics.setdefault(values, self._make())
        return metric

    def lines(self) -> Iterator[str]:
        """In the text format."""
        return self.lines_as(self.name, self.labels, ())

    def lines_as(self, name: str, labels: Sequence[str], more: Sequence[tuple[str, str]]) -> Iterator[str]:
        """In the text format, under another name, with other names for the labels and more of them."""
        sampled_name = f"{name}_total" if self.kind == "counter" else name
        yield f"# HELP {sampled_name} {self.help_text}"
        yield f"# TYPE {sampled_name} {self.kind}"
        for values, metric in list(self._metrics.items()):
            own = [*zip(labels, values, strict=True), *more]
            for suffix, sampled, value in metric.samples():
                pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in (*own, *sampled))
                yield f"{name}{suffix}{'{' + pairs + '}' if pairs else ''} {_number(value)}"


@dataclass(frozen=True, slots=True)
class Mirror:
    """The metrics of a family under the name that other servers have for them."""

    family: Family[Any]
    name: str
    labels: tuple[str, ...]
    more: tuple[tuple[str, str], ...]

    def lines(self) -> Iterator[str]:
        return self.family.lines_as(self.name, self.labels, self.more)


class Registry:
    """The families of one engine, in the order in which they were made."""

    def __init__(self) -> None:
        self._families: dict[str, Family[Any] | Mirror] = {}

    def counter(self, name: str, help_text: str, *labels: str) -> Family[Counter]:
        """`name` without `_total`."""
        return self._add(Family(name, "counter", help_text, labels, Counter))

    def gauge(self, name: str, help_text: str, *labels: str) -> Family[Gauge]:
        return self._add(Family(name, "gauge", help_text, labels, Gauge))

    def histogram(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...] = LATENCY_BUCKETS_S
    ) -> Family[Histogram]:
        return self._add(Family(name, "histogram", help_text, labels, lambda: Histogram(bounds)))

    def mirror(self, family: Family[Any], name: str, *labels: str, **more: str) -> None:
        """Exports a family under another name as well; `labels` rename its labels, `more` adds constant ones."""
        self._add(Mirror(family, name, labels, tuple(more.items())))

    def render(self) -> str:
        """All of it in Prometheus' text format."""
        return "".join(f"{line}\n" for family in self._families.values() for line in family.lines())

    def _add(self, family: F) -> F:
        assert family.name not in self._families, f"two metrics are called {family.name}"
        self._families[family.name] = family
        return family


class EngineMetrics(Registry):
    """What every engine counts. Times are in seconds, sizes in bytes; `model` is the served name."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.gauge("hemiola_requests_running", "Requests that hold memory.", "model")
        self.waiting = self.gauge("hemiola_requests_waiting", "Requests that wait to be admitted or resumed.", "model")
        self.finished = self.counter("hemiola_requests_finished", "Requests that ended well.", "model", "reason")
        self.failed = self.counter("hemiola_requests_failed", "Requests that ended badly.", "model", "code")
        self.parked = self.counter("hemiola_requests_parked", "Times that a request was parked.", "model")
        self.prompt_tokens = self.counter("hemiola_prompt_tokens", "Prompt tokens, cached ones too.", "model")
        self.cached_tokens = self.counter("hemiola_cached_tokens", "Prompt tokens not computed again.", "model")
        self.generated_tokens = self.counter("hemiola_generated_tokens", "Tokens generated.", "model")
        self.prefix_queries = self.counter(
            "hemiola_prefix_cache_queries", "Prompt tokens looked for in the prefix cache.", "model"
        )
        self.prefix_hits = self.counter("hemiola_prefix_cache_hits", "Prompt tokens found there.", "model")
        self.kv_usage = self.gauge("hemiola_kv_cache_usage_ratio", "Share of the pages that requests hold.", "model")
        self.steps = self.counter("hemiola_steps", "Steps launched.", "model", "phase")
        self.step_seconds = self.counter("hemiola_step_seconds", "Device time of steps.", "model", "phase")
        self.first_token_s = self.histogram("hemiola_time_to_first_token_seconds", "Arrival to first token.", "model")
        self.inter_token_s = self.histogram("hemiola_inter_token_seconds", "Between two tokens of one answer.", "model")
        self.request_s = self.histogram("hemiola_request_seconds", "Arrival to the final event.", "model")
        self.prediction_error = self.histogram(
            "hemiola_step_prediction_error_ratio",
            "How far predicted step times were off, as a share of the real ones.",
            "model",
            bounds=ERROR_BUCKETS,
        )
        self.arena_bytes = self.gauge("hemiola_arena_bytes", "Bytes of the arena by what holds them.", "kind")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
