"""Calls that are checked and go nowhere: the edge of models without an engine behind it. No torch, no weights."""

from collections.abc import Sequence
from pathlib import Path

from hemiola.core.config import EngineConfig
from hemiola.core.errors import RequestAborted
from hemiola.core.events import Failed
from hemiola.core.hub import encoder_source, resolve_all
from hemiola.core.request import Request

from .calls import Calls
from .front import open_fronts


class Rehearsal(Calls):
    """Raises what an engine over these models would raise for a call; a call that is right is aborted at once.

    Raises:
        HemiolaError: a model is not found, or its small files cannot be read.
    """

    def __init__(self, models: Sequence[str | Path], config: EngineConfig) -> None:
        served = resolve_all(models)
        shared = {source.name: encoder_source(source, served) for source in served if source.shared_encoder}
        super().__init__(open_fronts(served, shared, config), self)

    def __enter__(self) -> "Rehearsal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # As a backend

    def submit(self, request: Request) -> None:
        self._deliver(Failed(request.id, RequestAborted.code, "Nothing runs here."))

    def abort(self, request_id: str) -> None:
        """Nothing runs."""

    def finish(self, request_id: str) -> None:
        """Nothing runs."""
