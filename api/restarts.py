"""How often a dead engine is started again, how soon, and when it will be there. Knows times alone."""

from collections import deque
from dataclasses import dataclass, field

from hemiola.core.errors import Overloaded


@dataclass(frozen=True, slots=True)
class Restarts:
    """`max_deaths` in `window_s` seconds are one too many; after each but the first, `pause_s` longer is waited."""

    max_deaths: int = 4
    window_s: float = 300.0
    pause_s: float = 1.0


@dataclass(slots=True)
class Deaths:
    """Those of one engine that still count."""

    rules: Restarts
    times: deque[float] = field(default_factory=deque)

    def note(self, now_s: float) -> float | None:
        """It has died. How long to wait before it is started again; None if it is not."""
        self.times.append(now_s)
        while self.times[0] < now_s - self.rules.window_s:
            self.times.popleft()
        if len(self.times) >= self.rules.max_deaths:
            return None
        return self.rules.pause_s * (len(self.times) - 1)

    def __str__(self) -> str:
        return f"{len(self.times)} deaths in {self.times[-1] - self.times[0]:.0f} s"


@dataclass(slots=True)
class Starts:
    """How long one engine's starts take. The last one tells when the present one will be over."""

    begun_s: float = 0.0
    took_s: float = 0.0

    def begin(self, now_s: float) -> None:
        self.begun_s = now_s

    def end(self, now_s: float) -> None:
        self.took_s = now_s - self.begun_s

    def not_yet(self, now_s: float) -> Overloaded:
        """What whoever asks meanwhile is told: it is worth asking once more, and when, if that can be known."""
        left_s = self.begun_s + self.took_s - now_s
        return Overloaded("The engine is starting.", left_s if left_s > 0 else None)
