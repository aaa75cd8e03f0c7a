"""What a captured CUDA graph needs alive: it replays with the addresses it was captured with, and knows no owner.

Backends `keep` wrappers and workspaces that a launch reads; whoever captures collects them and holds them beside the
graph. Outside of a capture `keep` does nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_kept: ContextVar[list[object] | None] = ContextVar("hemiola_kept", default=None)


def keep(*needed: object) -> None:
    """Holds on to objects, if somebody is collecting; each once."""
    kept = _kept.get()
    if kept is not None:
        kept.extend(each for each in needed if not any(each is other for other in kept))


@contextmanager
def keeping() -> Iterator[list[object]]:
    """Collects what backends keep in this context: `with keeping() as kept, torch.cuda.graph(graph): ...`."""
    kept: list[object] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)
