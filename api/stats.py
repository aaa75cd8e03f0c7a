"""What an engine tells of itself: `EngineStats`, read on the loop's thread a few times a second. No text, no user data.

`StepCounts` is a trace that also counts, so that the figures grow for ever while the records are a ring.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hemiola.core.metrics import ERROR_BUCKETS, Histogram
from hemiola.core.tracing import StepRecord, StepTrace

if TYPE_CHECKING:
    from hemiola.llm.kv_cache import KvCache

    from .compose import Composition


class PhaseCount(msgspec.Struct, frozen=True):
    """Steps of one phase of one model since the start, and their device seconds."""

    model: str
    phase: str
    num_steps: int
    seconds: float


class ErrorCounts(msgspec.Struct, frozen=True):
    """How far predicted step times were off, as shares of the real ones: counts per bucket of `ERROR_BUCKETS`."""

    counts: tuple[int, ...]
    total: float


class CacheStats(msgspec.Struct, frozen=True):
    """The keys and values of one language model.

    Fields:
        query_tokens, hit_tokens: prompt tokens that were looked for in the prefix cache, and found, since the start.
        cached_tokens: in the prefix cache at the moment, used or not.
        used_pages: held by requests; pages that are only kept for later do not count.
        num_pages: that there could be at most.
    """

    query_tokens: int
    hit_tokens: int
    cached_tokens: int
    used_pages: int
    num_pages: int

    @property
    def usage(self) -> float:
        """Share of the pages in use, 0..1."""
        return self.used_pages / self.num_pages if self.num_pages else 0.0


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment. What counts, counts from the start of the engine's process.

    Fields:
        at_s: on the engine's clock.
        running: requests that hold memory, by model.
        num_queued: requests that wait to be admitted.
        parks: how often a request was parked, by model.
        phases: steps by model and phase.
        errors: of the cost model's predictions, by model.
        caches: by language model.
        arena_bytes: by what holds them.
    """

    at_s: float
    running: dict[str, int]
    num_queued: int
    parks: dict[str, int]
    phases: tuple[PhaseCount, ...]
    errors: dict[str, ErrorCounts]
    caches: dict[str, CacheStats]
    arena_bytes: dict[str, int]


class StepCounts(StepTrace):
    """The last `capacity` steps, and counts of all."""

    def __init__(self, capacity: int = 4096) -> None:
        super().__init__(capacity)
        self._phases: dict[tuple[str, str], list[float]] = {}
        self._errors: dict[str, Histogram] = {}

    def record(self, step: StepRecord) -> None:
        super().record(step)
        count = self._phases.setdefault((step.model, step.phase), [0, 0.0])
        count[0] += 1
        count[1] += step.seconds
        errors = self._errors.get(step.model)
        if errors is None:
            errors = self._errors[step.model] = Histogram(ERROR_BUCKETS)
        errors.observe(abs(step.predicted_s - step.seconds) / max(step.seconds, 1e-6))

    @property
    def phases(self) -> tuple[PhaseCount, ...]:
        return tuple(PhaseCount(*key, int(steps), seconds) for key, (steps, seconds) in self._phases.items())

    @property
    def errors(self) -> dict[str, ErrorCounts]:
        return {model: ErrorCounts(tuple(each.counts), each.total) for model, each in self._errors.items()}

    def clear(self) -> None:
        super().clear()
        self._phases.clear()
        self._errors.clear()


def read_stats(composition: "Composition", trace: StepCounts, clock: Callable[[], float]) -> EngineStats:
    """The figures now; on the loop's thread."""
    scheduler = composition.scheduler
    running = Counter(
        entry.runner.model for entry in scheduler.running.entries.values() if entry.is_request and not entry.is_held
    )
    return EngineStats(
        at_s=clock(),
        running=dict(running),
        num_queued=scheduler.num_queued,
        parks=dict(scheduler.parks),
        phases=trace.phases,
        errors=trace.errors,
        caches={
            name: _cache_stats(runner.kv_cache) for name, runner in composition.languages.items() if runner.generates
        },
        arena_bytes=composition.arena.kinds,
    )


def _cache_stats(cache: "KvCache") -> CacheStats:
    pages, prefixes = cache.page_class, cache.prefixes
    if prefixes is None:
        return CacheStats(0, 0, 0, len(pages.held), pages.num_pages_possible)
    return CacheStats(
        query_tokens=prefixes.stats.num_query_tokens,
        hit_tokens=prefixes.stats.num_hit_tokens,
        cached_tokens=prefixes.num_tokens,
        used_pages=len(pages.held) - prefixes.num_unused_tokens // cache.page_len,
        num_pages=pages.num_pages_possible,
    )
