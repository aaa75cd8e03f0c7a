"""The engine's process: `python -m hemiola.api.engine_process`, started by `link.py` and by nobody else.

It composes the models, runs the loop, takes commands and sends events, stops when the front says so, and dies with it.
"""

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from hemiola.core.bounds import number_words
from hemiola.core.config import MEMORY_FRACTION, EngineConfig, resolve
from hemiola.core.device import describe_device
from hemiola.core.errors import EngineDied, HemiolaError, InvalidRequest
from hemiola.core.events import Event
from hemiola.core.warm_up import WarmUp
from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Target
from hemiola.scheduler.scheduler import Scheduler

from . import compose
from .front import open_fronts
from .front.terms import engine_clock
from .front_link import FrontLink, die_with_the_front, leave_signals_to_the_front, read_spec
from .loop import EngineLoop
from .memory_plan import measured_line, memory_lines
from .outbox import Outbox
from .prefixes import forget_first_requests, forget_prefixes
from .stats import EngineStats, StepCounts, read_stats
from .warm_up import FirstRequests, line_of
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
        link.tell(Starting("Looking at the models' files"))
        self._loads = compose.plan(spec.models, sized(spec.config, spec.memory_fraction))
        self._loop = EngineLoop(
            self._build, self._deliver, self._on_idle, num_threads=self._loads.config.threads, on_step=self._on_step
        )
        fronts = open_fronts(self._loads.served, self._loads.shared, self._loads.config)
        self._first: FirstRequests | None = FirstRequests(
            self._loop,
            fronts,
            self._loads.config.max_batch_tokens,
            lambda: forget_first_requests(self._composition),
        )

    # Starting

    def start(self) -> None:
        """Loads, builds what can be built ahead, runs the first requests, and says that it is ready.

        Raises:
            HemiolaError: it cannot be run; the loop has ended.
        """
        self._link.tell(Starting(f"Loading {', '.join(source.name for source in self._loads.served)}"))
        try:
            self._loop.start()
            self._loop.call(lambda _: self._link.tell(Starting("Warming up")))
            assert self._first is not None, "an engine starts once"
            self._first.run()
        except BaseException:
            self._loop.stop(timeout=None)
            self._outbox.close()
            raise
        self._first = None
        self._loop.call(lambda _: self._link.tell(Ready(self._report())))

    def _build(self, emit: Callable[[Event], None]) -> Scheduler:
        self._composition = compose.build(self._loads, emit, self._trace, self._loop.is_called)

        def tell(warm_up: WarmUp) -> None:
            self._link.tell(Starting(line_of(warm_up)))

        self._composition.warm(tell)
        return self._composition.scheduler

    def _report(self) -> StartReport:
        config = self._loads.config
        target = Target.of(config.device, getattr(torch, config.dtype))
        chosen = {operation.name: operation.usable(target) for operation in OPERATIONS}
        measured = measured_line(self._loads)
        return StartReport(
            memory=(*memory_lines(self._loads), *([measured] if measured is not None else [])),
            kernels={name: usable[0] if usable else "none" for name, usable in chosen.items()},
            settings=tuple(config.lines()),
            seconds=time.monotonic() - self._began_s,
        )

    # On the loop's thread

    def _deliver(self, event: Event) -> None:
        first = self._first
        if first is not None:
            first.deliver(event)
        else:
            self._outbox.deliver(event)

    def _on_step(self) -> None:
        if self._first is None:
            self._outbox.flush(self._composition.scheduler.num_queued, self._stats)

    def _on_idle(self) -> None:
        self._composition.check()
        if self._first is None:
            self._outbox.send_stats(self._stats())

    def _stats(self) -> EngineStats:
        return read_stats(self._composition, self._trace, engine_clock)

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
                self._loop.call(lambda _: tell(Flushed(query, forget_prefixes(self._composition))))
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
    """The config with that share of the device's memory for the arena.

    Raises:
        InvalidRequest: it is no share, or there is no such device.
    """
    if fraction is None:
        return config
    if not MEMORY_FRACTION.has(fraction):
        allowed = number_words(float, MEMORY_FRACTION)
        raise InvalidRequest("memory_fraction", f"Invalid 'memory_fraction': {fraction}. Allowed: {allowed}.")
    device = resolve(config, compose.this_machine(), lanes=()).device
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
