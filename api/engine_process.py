"""The engine's process: `python -m hemiola.api.engine_process`, started by `link.py` and by nobody else.

It composes the models, runs the loop, takes commands and sends events, stops when the front says so, and dies with it.
"""

import faulthandler
import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from hemiola.core.config import EngineConfig
from hemiola.core.device import describe_device
from hemiola.core.errors import EngineDied, HemiolaError, InvalidRequest
from hemiola.core.events import Event, Failed, Final
from hemiola.core.memory.radix import PrefixStats
from hemiola.core.request import Request
from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Target
from hemiola.llm.kv_cache import KvCache
from hemiola.scheduler.scheduler import Scheduler

from . import compose
from .front import open_fronts
from .front.terms import engine_clock
from .front_link import FrontLink, die_with_the_front, leave_signals_to_the_front, read_spec
from .loop import EngineLoop
from .outbox import Outbox
from .stats import EngineStats, StepCounts, read_stats
from .warm_up import warm_up_requests
from .wire import (
    Abort,
    Command,
    Died,
    EndProgram,
    EngineSpec,
    Finish,
    Flush,
    Flushed,
    GetStats,
    GetSteps,
    Ready,
    Shutdown,
    StartFailed,
    Starting,
    StartReport,
    StatsReport,
    Steps,
    Submit,
)

log = logging.getLogger(__name__)

_DEATH_CHECK_MS = 100
_SECOND_WARM_UP_WITHIN_S = 60.0


class EngineHost:
    """A loop behind a link to the front. Made, started and served on the process's main thread.

    Args:
        spec: what to run.
        link: `tell` is the loop's from `start` to `close`.

    Raises:
        HemiolaError: it cannot be run as it was asked to.
    """

    def __init__(self, spec: EngineSpec, link: FrontLink) -> None:
        self._began_s = time.monotonic()
        self._link = link
        self._outbox = Outbox(link, engine_clock)
        self._trace = StepCounts()
        self._warming: queue.SimpleQueue[Event] | None = queue.SimpleQueue()
        link.tell(Starting("Looking at the models' files"))
        self._loads = compose.plan(spec.models, sized(spec.config, spec.memory_fraction))
        self._loop = EngineLoop(
            self._build, self._deliver, self._on_idle, num_threads=self._loads.config.threads, on_step=self._on_step
        )

    # Starting

    def start(self) -> None:
        """Loads, warms up, and says that it is ready.

        Raises:
            HemiolaError: it cannot be run; the loop has ended.
        """
        self._link.tell(Starting(f"Loading {', '.join(source.name for source in self._loads.served)}"))
        try:
            self._loop.start()
            self._warm_up()
        except BaseException:
            self._loop.stop(timeout=None)
            self._outbox.close()
            raise
        self._warming = None
        self._loop.call(lambda _: self._link.tell(Ready(self._report())))

    def _build(self, emit: Callable[[Event], None]) -> Scheduler:
        self._composition = compose.build(self._loads, emit, self._trace)
        return self._composition.scheduler

    def _warm_up(self) -> None:
        """Twice, unless it takes long: the first round's times say little, so the cost model learns from the second."""
        self._loop.call(lambda _: self._link.tell(Starting("Warming up")))
        fronts = open_fronts(self._loads.served, self._loads.shared, self._loads.config)
        began_s = time.monotonic()
        self._run_all(list(warm_up_requests(fronts)))
        self._loop.call(lambda scheduler: scheduler.costs.forget())
        if time.monotonic() - began_s < _SECOND_WARM_UP_WITHIN_S:
            self._run_all(list(warm_up_requests(fronts)))
        self._loop.call(lambda _: self._forget_warm_up())

    def _run_all(self, requests: Sequence[Request]) -> None:
        assert self._warming is not None
        for request in requests:
            self._loop.submit(request)
        for _ in requests:
            while not isinstance(event := self._warming.get(), Final):
                pass
            if isinstance(event, Failed):
                log.warning("Warming up: %s (%s)", event.message, event.code)

    def _forget_warm_up(self) -> None:
        self._forget_prefixes()
        self._trace.clear()
        for cache in self._caches():
            if cache.prefixes is not None:
                cache.prefixes.stats = PrefixStats()

    def _report(self) -> StartReport:
        config, weights = self._loads.config, self._loads.weights
        target = Target.of(config.device, getattr(torch, config.dtype))
        chosen = {operation.name: operation.usable(target) for operation in OPERATIONS}
        return StartReport(
            weight_bytes={name: summary.bytes_as(config.dtype) for name, summary in weights.items()},
            kernels={name: usable[0] if usable else "none" for name, usable in chosen.items()},
            settings=tuple(config.lines()),
            seconds=time.monotonic() - self._began_s,
        )

    # On the loop's thread

    def _deliver(self, event: Event) -> None:
        if self._warming is not None:
            self._warming.put(event)
        else:
            self._outbox.deliver(event)

    def _on_step(self) -> None:
        if self._warming is None:
            self._outbox.flush(self._composition.scheduler.num_queued, self._stats)

    def _on_idle(self) -> None:
        self._composition.check()
        if self._warming is None:
            self._outbox.send_stats(self._stats())

    def _stats(self) -> EngineStats:
        return read_stats(self._composition, self._trace, engine_clock)

    def _forget_prefixes(self) -> int:
        """How many tokens were forgotten."""
        num_tokens = 0
        for cache in self._caches():
            prefixes = cache.prefixes
            if prefixes is not None:
                num_tokens += prefixes.num_tokens + prefixes.num_host_tokens
                prefixes.flush()
                num_tokens -= prefixes.num_tokens + prefixes.num_host_tokens
        return num_tokens

    def _caches(self) -> list[KvCache]:
        return [runner.kv_cache for runner in self._composition.languages.values() if runner.generates]

    # Serving

    def serve(self) -> int:
        """Takes commands until the front wants no more or the loop dies; the exit status."""
        try:
            while self._loop.error is None:
                command = self._link.next_command(_DEATH_CHECK_MS)
                if isinstance(command, Shutdown):
                    return 0
                if command is not None:
                    self._do(command)
        except EngineDied:
            log.debug("The loop died between two commands.")
        return 1

    def _do(self, command: Command) -> None:
        tell = self._link.tell
        match command:
            case Submit(request):
                self._outbox.taking(request)
                self._loop.submit(request)
                self._loop.call(lambda _: self._outbox.taken())
            case Abort(request_id):
                self._loop.abort(request_id)
            case Finish(request_id):
                self._loop.finish(request_id)
            case EndProgram(program):
                self._loop.end_program(program)
            case Flush(query):
                self._loop.call(lambda _: tell(Flushed(query, self._forget_prefixes())))
            case GetStats(query):
                self._loop.call(lambda _: tell(StatsReport(self._stats(), query)))
            case GetSteps(query, since_s):
                self._loop.call(lambda _: tell(Steps(query, self._trace.since(since_s))))

    def close(self) -> None:
        """Aborts what runs and ends the loop; says so if it had died."""
        self._loop.stop(timeout=None)
        self._outbox.close()
        if self._loop.error is not None:
            self._link.tell(Died(f"{type(self._loop.error).__name__}: {self._loop.error}"))


def sized(config: EngineConfig, fraction: float | None) -> EngineConfig:
    """The config with that share of the device's memory for the arena."""
    if fraction is None:
        return config
    if not 0 < fraction < 1:
        raise InvalidRequest("memory_fraction", f"Invalid 'memory_fraction': {fraction}. Allowed: above 0, below 1.")
    has_gpu = config.device.startswith("cuda") or (config.device == "auto" and torch.cuda.is_available())
    device = config.device if ":" in config.device else "cuda:0" if has_gpu else "cpu"
    return replace(config, memory_bytes=int(describe_device(device).total_bytes * fraction))


def run(spec: EngineSpec, link: FrontLink) -> int:
    """One engine from its start to its end; the exit status."""
    try:
        host = EngineHost(spec, link)
        host.start()
    except HemiolaError as error:
        link.tell(StartFailed(error.code, error.message))
        return 2
    except Exception as error:
        log.exception("The engine could not be started.")
        link.tell(StartFailed(HemiolaError.code, f"{type(error).__name__}: {error}"))
        return 2
    status = host.serve()
    host.close()
    return status


def main() -> int:
    """Runs the engine that standard input describes; the exit status."""
    leave_signals_to_the_front()
    faulthandler.enable()
    spec = read_spec(sys.stdin.fileno())
    die_with_the_front(sys.stdin.fileno(), spec.frame_folders)
    logging.basicConfig(level=spec.log_level, format="%(levelname)s engine %(name)s: %(message)s")
    link = FrontLink(spec)
    status = run(spec, link)
    link.close()
    return status


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)  # all is said: taking a loaded torch apart in order would keep the front waiting for seconds
