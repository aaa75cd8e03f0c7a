"""The engine in this process: `Engine("demo")`, then the methods of `Calls`: chat, complete, image, video."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hemiola.core.config import EngineConfig
from hemiola.core.events import Event
from hemiola.core.tracing import StepRecord, StepTrace
from hemiola.scheduler.scheduler import Scheduler

from . import compose
from .calls import Calls
from .front import open_fronts
from .loop import EngineLoop


class Engine(Calls):
    """Serves one or several models of any kind from one scheduler and one memory budget.

    Args:
        models: `"demo"`, Hugging Face ids, local folders, `name=path`; language and diffusion, told from their files.
        config: everything else; `options` are its fields by name.

    Fields:
        loads: what was loaded.
        trace: the steps that ran.

    Raises:
        HemiolaError: a model is not found, not supported, corrupt, or does not fit.

    Use it as a context manager, or `close()` it.
    """

    def __init__(self, *models: str | Path, config: EngineConfig | None = None, **options: Any) -> None:
        self.loads = compose.plan(models or ("demo",), replace(config or EngineConfig(), **options))
        self.trace = StepTrace()
        self._composition: compose.Composition | None = None
        self._loop = EngineLoop(self._build, self._deliver, on_idle=self._check, num_threads=self.loads.config.threads)
        super().__init__(open_fronts(self.loads.served, self.loads.shared, self.loads.config), self._loop)
        try:
            self._loop.start()
        except BaseException:
            super().close()
            raise

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Aborts what runs and stops the threads. The engine takes no more calls."""
        self._loop.stop()
        super().close()

    def recent_steps(self, since_s: float) -> list[StepRecord]:
        """As in `Calls`, from the trace."""
        return list(self.trace.since(since_s))

    def _build(self, emit: Callable[[Event], None]) -> Scheduler:
        self._composition = compose.build(self.loads, emit, self.trace, self._loop.is_called)
        return self._composition.scheduler

    def _check(self) -> None:
        """When idle: asserts that every byte has one owner."""
        if self._composition is not None:
            self._composition.check()
