"""The engine in this process: `Engine("demo")`, then the methods of `Calls`: chat, complete, image, video."""

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch

from hemiola.core.caches import Caches
from hemiola.core.config import EngineConfig
from hemiola.core.errors import EngineDied
from hemiola.core.events import Event
from hemiola.core.tracing import StepRecord, StepTrace
from hemiola.core.warm_up import WarmUp
from hemiola.scheduler.scheduler import Scheduler

from . import compose
from .calls import Calls
from .configured import configured, models_named
from .front import open_fronts
from .loop import EngineLoop
from .prefixes import forget_first_requests
from .warm_up import FirstRequests, line_of

log = logging.getLogger(__name__)


class Engine(Calls):
    """Serves one or several models of any kind from one scheduler and one memory budget.

    Args:
        models: `"demo"`, Hugging Face ids, local folders, `name=path`; language and diffusion, told from their files.
        config: everything else; `options` are its fields by name.
        on_line: told how the start goes, line by line; without it, that goes to the log.

    Fields:
        loads: what was loaded.
        trace: the steps that ran.
        num_built: how many things were built before the first request: kernels, graphs, shares of the SMs.

    On a GPU, what requests can reach is built first and small ones are run, before any of the user's.

    Raises:
        HemiolaError: a model is not found, not supported, corrupt, or does not fit.
        InvalidRequest: there is no such option, or a value cannot be.

    Use it as a context manager, or `close()` it.
    """

    def __init__(
        self,
        *models: str | Path,
        config: EngineConfig | None = None,
        on_line: Callable[[str], None] = log.info,
        **options: Any,
    ) -> None:
        self.loads = compose.plan(models_named(models), configured(config, options, Engine))
        self.trace = StepTrace()
        self.num_built = 0
        self._on_line = on_line
        self._first: FirstRequests | None = None
        self._composition: compose.Composition | None = None
        self._is_closed = False
        self._loop = EngineLoop(self._build, self._deliver, on_idle=self._check, num_threads=self.loads.config.threads)
        super().__init__(open_fronts(self.loads.served, self.loads.shared, self.loads.config), self._loop)
        try:
            self._loop.start()
            if self.loads.config.is_gpu:
                self._run_first_requests()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """
        Raises:
            EngineDied: the engine was closed.
        """
        if self._is_closed:
            raise EngineDied("The engine was closed; make another.")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Aborts what runs, stops the threads and gives the memory back. The engine takes no more calls."""
        self._loop.stop()
        super().close()
        if not self._is_closed:
            self._is_closed, self._composition = True, None
            gc.collect()  # what refers to each other in a circle: pages, runners, graphs
            Caches(torch.device(self.loads.config.device)).give_all_back()

    @property
    def composition(self) -> compose.Composition:
        """The scheduler and what it runs on; to be looked at, and only while nothing runs.

        Raises:
            EngineDied: the engine is closed.
        """
        if self._composition is None:
            raise EngineDied("The engine is closed, and what it ran on is gone.")
        return self._composition

    def recent_steps(self, since_s: float) -> list[StepRecord]:
        """As in `Calls`, from the trace."""
        return list(self.trace.since(since_s))

    def _build(self, emit: Callable[[Event], None]) -> Scheduler:
        made = self._composition = compose.build(self.loads, emit, self.trace, self._loop.is_called)

        def tell(warm_up: WarmUp) -> None:
            self._on_line(line_of(warm_up))

        self.num_built = made.warm(tell)
        return made.scheduler

    def _run_first_requests(self) -> None:
        self._on_line("Warming up")
        self._first = FirstRequests(
            self._loop,
            self.fronts,
            self.loads.config.max_batch_tokens,
            lambda: forget_first_requests(self.composition),
        )
        self._first.run()
        self._first = None

    def _deliver(self, event: Event) -> None:
        first = self._first
        if first is not None:
            first.deliver(event)
        else:
            super()._deliver(event)

    def _check(self) -> None:
        """When idle: asserts that every byte has one owner."""
        if self._composition is not None:
            self._composition.check()
