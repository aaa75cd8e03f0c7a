"""The engine in a process of its own: `ServedEngine("demo")`, then the methods of `Calls`, exactly as with `Engine`.

This process keeps the fronts (templates, tokenizers, detokenizing) and stays free of torch; the other one computes.
When that one dies, whatever was running fails at once and it is started again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hemiola.core.bounds import Bounds, check_fields
from hemiola.core.config import MEMORY_FRACTION, EngineConfig
from hemiola.core.errors import EngineDied, HemiolaError
from hemiola.core.events import Event
from hemiola.core.hub import encoder_source, resolve_all
from hemiola.core.request import Request
from hemiola.core.tracing import StepRecord

from .calls import Calls
from .configured import configured, models_named
from .front import open_fronts
from .front.terms import engine_clock
from .link import ENGINE_MODULE
from .metrics import ServerMetrics
from .operations import Condition
from .remote import RemoteEngine, State
from .restarts import Restarts
from .stats import EngineStats
from .wire import Command, EngineSpec, Flush, GetStats, GetSteps, StartReport

_ANSWER_WAIT_S = 5.0  # the engine answers between two steps
_CONDITIONS: dict[State, Condition] = {
    "new": "starting",
    "starting": "starting",
    "ready": "ready",
    "restarting": "starting",
    "down": "dead",
    "closed": "draining",
}


class _Counted:
    """The remote engine as a backend whose requests are counted."""

    def __init__(self, remote: RemoteEngine, metrics: ServerMetrics) -> None:
        self._remote = remote
        self._metrics = metrics
        self.abort = remote.abort
        self.finish = remote.finish
        self.end_program = remote.end_program

    def submit(self, request: Request) -> None:
        self._metrics.started(request)
        try:
            self._remote.submit(request)
        except HemiolaError as error:
            self._metrics.rejected(request, error.code)
            raise


MAX_QUEUE = Bounds(1, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnOptions:
    """What is set of the front's side alone."""

    memory_fraction: float | None
    max_queue: int

    def __post_init__(self) -> None:
        check_fields(self, {"memory_fraction": MEMORY_FRACTION, "max_queue": MAX_QUEUE})


class ServedEngine(Calls):
    """Serves one or several models of any kind from another process.

    Args:
        models: `"demo"`, Hugging Face ids, local folders, `name=path`; language and diffusion, told from their files.
        config: of the engine; `options` are its fields by name.
        memory_fraction: of the device's memory for the arena, instead of config's bytes.
        max_queue: requests that may wait to be admitted; beyond, calls raise Overloaded.
        log_level: of the engine's process.
        on_line: told how a start goes, line by line.
        module: what the process runs.

    Fields:
        sources: the served models.
        metrics: what the front counts.
        remote: the engine's process.

    Raises:
        HemiolaError: a model is not found or its files cannot be read. What only the engine's process finds out, such
            as weights that do not fit, `start` raises.

    Use it as a context manager, or `start()` and `close()` it.
    """

    def __init__(
        self,
        *models: str | Path,
        config: EngineConfig | None = None,
        memory_fraction: float | None = None,
        max_queue: int = 256,
        log_level: str = "WARNING",
        restarts: Restarts | None = None,
        on_line: Callable[[str], None] | None = None,
        module: str = ENGINE_MODULE,
        **options: Any,
    ) -> None:
        asked = models_named(models)
        _OwnOptions(memory_fraction=memory_fraction, max_queue=max_queue)
        engine_config = configured(config, options, ServedEngine)
        self.sources = served = resolve_all(asked)
        spec = EngineSpec(
            models=tuple(map(str, asked)),
            config=engine_config,
            memory_fraction=memory_fraction,
            log_level=log_level.upper(),
        )
        shared = {source.name: encoder_source(source, served) for source in served if source.shared_encoder}
        fronts = open_fronts(served, shared, spec.config)
        self.metrics = ServerMetrics({name: front.kind for name, front in fronts.items()})
        self.remote = RemoteEngine(
            spec, self._deliver, max_queue=max_queue, restarts=restarts, on_line=on_line, module=module
        )
        super().__init__(fronts, _Counted(self.remote, self.metrics))

    def __enter__(self) -> "ServedEngine":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Life

    def begin(self) -> None:
        """Starts the engine's process, and returns at once."""
        self.remote.begin()

    def start(self, timeout: float | None = None) -> StartReport:
        """Starts the engine's process, unless it is running, and waits until it takes requests.

        Raises:
            HemiolaError: it cannot be run; the code says why.
            EngineDied: the engine was closed.
            TimeoutError: not ready within `timeout` seconds.
        """
        if self.remote.state == "closed":
            raise EngineDied("The engine was closed; make another.")
        if self.remote.state == "new":
            self.remote.begin()
        try:
            return self.remote.wait_ready(timeout)
        except HemiolaError:
            self.close()
            raise

    @property
    def is_ready(self) -> bool:
        """Whether calls are taken."""
        return self.remote.is_ready

    def close(self, drain_s: float = 0.0) -> None:
        """Lets calls end for so long, aborts the others, and ends the engine's process. No more calls are taken."""
        self.remote.close(drain_s)
        super().close()

    # What a server asks besides requests: see `operations.py`

    def condition(self) -> Condition:
        """As health checks have it."""
        return "draining" if self.remote.is_draining else _CONDITIONS[self.remote.state]

    def metrics_text(self) -> str:
        """All figures in Prometheus' text format."""
        return self.metrics.show(self.remote.stats, is_ready=self.is_ready, num_restarts=self.remote.num_restarts)

    async def flush_caches(self) -> int:
        """Empties the prefix caches of what nobody uses; how many tokens that were.

        Raises:
            Overloaded: the engine is starting.
            EngineDied: there is no engine to ask.
        """
        num_tokens: int = await asyncio.wrap_future(self.remote.ask(Flush))
        return num_tokens

    def flush_cache(self) -> int:
        """As `flush_caches`, waiting for the answer."""
        num_tokens: int = self._answer(Flush)
        return num_tokens

    def recent_steps(self, since_s: float) -> list[StepRecord]:
        """As in `Calls`, some thousands at most; waits for the engine's step to end.

        Raises:
            Overloaded: the engine is starting.
            EngineDied: there is no engine to ask.
            TimeoutError: it does not answer.
        """
        return list(self._answer(lambda query: GetSteps(query, since_s)))

    def stats(self) -> EngineStats | None:
        """The engine's newest figures, at most a quarter of a second old while it works; None before the first."""
        return self.remote.stats

    def fresh_stats(self) -> EngineStats:
        """The engine's figures, read now.

        Raises:
            Overloaded: the engine is starting.
            EngineDied: there is no engine to ask.
        """
        stats: EngineStats = self._answer(GetStats)
        return stats

    def _answer(self, command: Callable[[int], Command]) -> Any:
        return self.remote.ask(command).result(_ANSWER_WAIT_S)

    # Inside

    def _deliver(self, event: Event) -> None:
        self.metrics.observe(event, engine_clock())
        super()._deliver(event)
