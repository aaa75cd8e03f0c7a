"""What is built before the first request: kernels, graphs, streams on a share of the SMs. No torch, no scheduling.

A runner that has something to build says what (`warm_ups`); one that has not, as on a CPU, need not have the method.
Nothing of it may be left to a user's first request.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class WarmUp:
    """One thing to build.

    Fields:
        name: for people, with what it is for: "llama: decode graph, 64 rows".
        seconds: about how long it takes.
        run: builds it, on the thread that will use it. What it raises ends the start.
    """

    name: str
    seconds: float
    run: Callable[[], object] = field(repr=False)


@runtime_checkable
class HasWarmUps(Protocol):
    """A runner with something to build."""

    def warm_ups(self) -> Iterable[WarmUp]:
        """All that the requests which are allowed here can reach, in the order in which it is to be built.

        Asked for once, before the first request; each is run before the next one is taken.
        """
        ...
