"""Where programs run and on what terms. `with using(engine):` says it for all programs that are started inside."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from hemiola.core.errors import InvalidRequest

from ..front.terms import CallTerms
from .asking import Asked

_chosen: ContextVar[Asked | None] = ContextVar("hemiola_engine", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Of one program.

    Fields:
        calls: an Engine, a ServedEngine, a client; None for that of `using`.
        timeout_s: for a whole run; then everything of it is cancelled.
        terms: of all calls of a run; `deadline_s` counts from its beginning, `id` is not used.
        is_remote: the client's server runs it as a whole.
    """

    calls: Asked | None = None
    timeout_s: float | None = None
    terms: CallTerms = field(default_factory=CallTerms)
    is_remote: bool = False

    @property
    def chosen(self) -> Asked:
        """Where to run.

        Raises:
            InvalidRequest: nobody said.
        """
        calls = self.calls or _chosen.get()
        if calls is None:
            text = "Say where the program runs: `with hemiola.using(engine): ...`, or program.on(engine).run(...)."
            raise InvalidRequest("engine", text)
        return calls


def check_calls(calls: Any) -> None:
    """Raises: InvalidRequest: no program can run there."""
    if isinstance(calls, type) or not hasattr(calls, "stream_chat"):
        text = (
            f"Invalid engine: {calls!r:.80}. Allowed: an Engine, a ServedEngine, a Client; hemiola.Engine('demo'), say."
        )
        raise InvalidRequest("engine", text)


@contextmanager
def using(calls: Any) -> Iterator[None]:
    """Programs that are started inside run there: an Engine, a ServedEngine, a client."""
    check_calls(calls)
    token = _chosen.set(calls)
    try:
        yield
    finally:
        _chosen.reset(token)
