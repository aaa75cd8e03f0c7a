"""What the server asks of an engine besides requests: how it is, its figures, and to forget what it cached."""

from typing import Literal, Protocol, runtime_checkable

Condition = Literal["starting", "ready", "draining", "dead"]


@runtime_checkable
class Operations(Protocol):
    """Calls that can also do this are asked themselves (see `api.http.app.create_app`)."""

    def condition(self) -> Condition:
        """Whether requests are taken. At once: health checks ask for it while the engine is busy or gone."""
        ...

    def metrics_text(self) -> str:
        """The engine's figures in Prometheus' text format; at once."""
        ...

    async def flush_caches(self) -> int:
        """Forgets all prompts' cached tokens that nobody uses; how many those were.

        Raises:
            Overloaded: the engine is starting.
            EngineDied: there is no engine to ask.
        """
        ...


class NoOperations:
    """Of calls that only take requests: they are always ready, and show no figures."""

    def condition(self) -> Condition:
        return "ready"

    def metrics_text(self) -> str:
        return ""

    async def flush_caches(self) -> int:
        return 0
