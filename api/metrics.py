"""The figures of a server: the engine's own, which it sends, and what the front sees of every request's events.

Rendered as Prometheus' text, under our names and under the twelve names of vLLM that dashboards and gateways read.
"""

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hemiola.core.events import Event, Failed, Finished, Token
from hemiola.core.metrics import Counter, EngineMetrics, Family, Histogram
from hemiola.core.request import Request, TextRequest

from .stats import CacheStats, EngineStats

EMPTY = EngineStats(at_s=0.0, running={}, num_queued=0, parks={}, phases=(), errors={}, caches={}, arena_bytes={})


@dataclass(slots=True)
class _Running:
    """A request that has not ended; times on the engine's clock."""

    model: str
    arrival_s: float
    is_text: bool
    last_token_s: float | None = None


class ServerMetrics(EngineMetrics):
    """One server's. `started` and `rejected` on any thread; `observe` on the one that brings the request's events.

    Args:
        kinds: what each served model makes: text, image or video.
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        super().__init__()
        self.rejected_requests = self.counter(
            "hemiola_requests_rejected", "Requests that were not taken.", "model", "code"
        )
        self.ready = self.gauge("hemiola_engine_ready", "Whether the engine takes requests.")
        self.restarts = self.counter("hemiola_engine_restarts", "Times that a dead engine was started again.")
        model_info = self.gauge("hemiola_model_info", "The models that are served.", "model", "modality")
        self._kinds = dict(kinds)
        self._running: dict[str, _Running] = {}
        self._seen: dict[tuple[str, ...], float] = {}
        self._rendering = threading.Lock()
        for model, kind in kinds.items():
            model_info(model, kind).set(1)
        self._mirror_for_dashboards()

    def _mirror_for_dashboards(self) -> None:
        mirrored: Iterable[tuple[Family[Any], str, tuple[str, ...]]] = (
            (self.running, "num_requests_running", ()),
            (self.waiting, "num_requests_waiting", ()),
            (self.kv_usage, "kv_cache_usage_perc", ()),
            (self.prompt_tokens, "prompt_tokens", ()),
            (self.generated_tokens, "generation_tokens", ()),
            (self.finished, "request_success", ("finished_reason",)),
            (self.parked, "num_preemptions", ()),
            (self.prefix_queries, "prefix_cache_queries", ()),
            (self.prefix_hits, "prefix_cache_hits", ()),
            (self.first_token_s, "time_to_first_token_seconds", ()),
            (self.inter_token_s, "inter_token_latency_seconds", ()),
            (self.request_s, "e2e_request_latency_seconds", ()),
        )
        for family, name, labels in mirrored:
            self.mirror(family, f"vllm:{name}", "model_name", *labels, engine="0")

    # From requests and their events

    def started(self, request: Request) -> None:
        is_text = isinstance(request, TextRequest)
        self._running[request.id] = _Running(request.model, request.arrival_s, is_text)

    def rejected(self, request: Request, code: str) -> None:
        """It was started, and not taken."""
        self._running.pop(request.id, None)
        self.rejected_requests(request.model, code).add()

    def observe(self, event: Event, now_s: float) -> None:
        """An event of a request has come."""
        running = self._running.get(event.request_id)
        if running is None:
            return
        if isinstance(event, Token):
            if running.last_token_s is None:
                self.first_token_s(running.model).observe(now_s - running.arrival_s)
            else:
                self.inter_token_s(running.model).observe(now_s - running.last_token_s)
            running.last_token_s = now_s
            self.generated_tokens(running.model).add()
        elif isinstance(event, Finished | Failed):
            self._end(event, running, now_s)

    def _end(self, event: Finished | Failed, running: _Running, now_s: float) -> None:
        del self._running[event.request_id]
        self.request_s(running.model).observe(now_s - running.arrival_s)
        if isinstance(event, Failed):
            self.failed(running.model, event.code).add()
            return
        self.finished(running.model, event.reason).add()
        if running.is_text:
            self.prompt_tokens(running.model).add(event.usage.prompt_tokens)
            self.cached_tokens(running.model).add(event.usage.cached_tokens)

    # From the engine

    def show(self, stats: EngineStats | None, *, is_ready: bool, num_restarts: int) -> str:
        """All of it in Prometheus' text format, with the engine's newest figures."""
        with self._rendering:
            self._take_in(stats or EMPTY)
            self.ready().set(float(is_ready))
            self._grow(self.restarts(), num_restarts, "restarts")
            return self.render()

    def _take_in(self, stats: EngineStats) -> None:
        unfinished = Tally(running.model for running in tuple(self._running.values()))
        for model in self._kinds:
            num_running = min(stats.running.get(model, 0), unfinished[model])
            self.running(model).set(num_running)
            self.waiting(model).set(unfinished[model] - num_running)
        for model, cache in stats.caches.items():
            self._take_in_cache(model, cache)
        for model, num_parks in stats.parks.items():
            self._grow(self.parked(model), num_parks, "parks", model)
        for phase in stats.phases:
            self._grow(self.steps(phase.model, phase.phase), phase.num_steps, "steps", phase.model, phase.phase)
            self._grow(self.step_seconds(phase.model, phase.phase), phase.seconds, "s", phase.model, phase.phase)
        for model, errors in stats.errors.items():
            _replace(self.prediction_error(model), errors.counts, errors.total)
        for kind, nbytes in stats.arena_bytes.items():
            self.arena_bytes(kind).set(nbytes)

    def _take_in_cache(self, model: str, cache: CacheStats) -> None:
        self.kv_usage(model).set(cache.usage)
        self._grow(self.prefix_queries(model), cache.query_tokens, "queries", model)
        self._grow(self.prefix_hits(model), cache.hit_tokens, "hits", model)

    def _grow(self, counter: Counter, value: float, *key: str) -> None:
        """The engine counts from its own start; a smaller figure than before is that of another process."""
        before = self._seen.get(key, 0.0)
        counter.add(value - before if value >= before else value)
        self._seen[key] = value


def _replace(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """As it is in the engine now; those of a process that died are forgotten."""
    histogram.counts, histogram.total = list(counts), total
