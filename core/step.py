"""The contract between the scheduler and the runners: what a step is, costs, takes and gives.

A *step* is one schedulable piece of device work over a batch of states. The scheduler sees states only through
`StateView`; what they hold (tensors, leases, solver history) is their runner's business. No torch.

One iteration is: choose (policy) -> `plan` and `launch` (runner) -> `collect` (runner). A state *advances at launch*
and may be launched again while fewer than two of its steps are in flight; `collect` only delivers.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from .errors import HemiolaError, StepFailed
from .events import Event, Failed
from .request import Request


class Work(NamedTuple):
    """How much a step does: sums over its rows, and what the cost model predicts seconds from.

    `attended_pairs` is queries x keys, `blocks` counts modules run, `pixels` counts what a VAE or decoder writes,
    `copy_bytes` what is moved.
    """

    rows: int = 0
    new_tokens: int = 0
    context_tokens: int = 0
    attended_pairs: int = 0
    blocks: int = 0
    pixels: int = 0
    copy_bytes: int = 0

    def plus(self, other: "Work") -> "Work":
        return Work(*map(int.__add__, self, other))


def total_work(works: Iterable[Work]) -> Work:
    """The sum over several works; the empty sum is no work."""
    columns = list(zip(*works, strict=True))
    return Work(*map(sum, columns)) if columns else Work()


def blocks_work(rows: Sequence[Sequence[Work]]) -> Work:
    """Of blocks that rows run together, `rows[i][j]` being the work of block j for row i alone.

    A row counts once, however many blocks it runs; and so does a block, however many rows run it.
    """
    total = total_work(work for row in rows for work in row)
    return total._replace(rows=len(rows), blocks=len(rows[0]) if rows else 0)


@dataclass(frozen=True, slots=True)
class Tokens:
    """A cut or quantum in tokens. As a cut: how many tokens the state could take in its next step (decode: 1)."""

    max: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """A cut or quantum in module blocks, `first` to `last` inclusive, of the step that is open or would be opened.

    As a cut it names all blocks that are left of the step; a quantum takes a leading part of them (same `first`).
    `works[i]` is the work of block `first + i` for the state alone; a quantum leaves it empty.
    """

    first: int
    last: int
    works: tuple[Work, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """The step cannot be cut: a copy, a load."""


Quantum = Tokens | Blocks | Whole


@dataclass(frozen=True, slots=True)
class Slot:
    """Where and after what a batch runs.

    Fields:
        lane: name of the lane.
        sm_share: fraction of the device's SMs, 1.0 for all (always 1.0 on a CPU).
        sequence: strictly increasing per lane; leases remember it.
        now_s: the engine's clock at launch, for due times.
    """

    lane: str
    sm_share: float
    sequence: int
    now_s: float


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What could not be leased: `nbytes` of a page class (by name) or of general memory (`page_class` None).

    As an answer of `admit` it means: not now; stay queued.
    """

    nbytes: int
    page_class: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The request can never run here as it is."""

    error: HemiolaError


@dataclass(slots=True)
class Batch:
    """What one launch takes. `plan` made it and leased all that its states need for it.

    Fields:
        states: the rows, in policy order.
        work: sums over the rows.
        cost_key: coarse: (model, phase mix, shape class).
        quantum: what was granted.
        payload: the runner's own (tensors, page tables, the open carry); nobody else looks.
    """

    states: Sequence[Any]
    work: Work
    cost_key: Hashable
    quantum: Quantum
    payload: Any = field(default=None, repr=False)


class Pending(Protocol):
    """A launched batch. On a CPU it is done at once."""

    @property
    def seconds(self) -> float | None:
        """Device seconds that it took, known once it is done."""
        ...

    def done(self) -> bool:
        """Whether `collect` would not wait."""
        ...

    def wait(self) -> None:
        """Waits until done."""
        ...


class StepOutput(msgspec.Struct, frozen=True):
    """What a collected step gave for one state. The last event is Finished or Failed iff `is_final`."""

    state: Any
    events: Sequence[Event]
    is_final: bool = False


def failed_output(state: Any, error: Exception) -> StepOutput:
    """The end of a state whose results could not be told; others of its step are unharmed."""
    if not isinstance(error, HemiolaError):
        error = StepFailed(f"The result of a step could not be told: {type(error).__name__}: {error}")
    return StepOutput(state, (Failed(state.id, error.code, error.message),), True)


class StateView(Protocol):
    """All that the scheduler and its policies may see of a running request (or of a chore).

    `phase` is a label for traces; nothing branches on it. States with equal (runner, `batch_key`) may share a launch.
    `remaining` is exact for diffusion, an upper bound for text. `bytes_needed` is what a resume or the next step would
    have to lease anew. `behind_s` are predicted seconds of what waits for its end; `due_s` has them in it.
    """

    @property
    def id(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def waiting_for(self) -> str | None: ...
    @property
    def batch_key(self) -> Hashable: ...
    @property
    def cost_key(self) -> Hashable: ...
    @property
    def cut(self) -> Quantum: ...
    @property
    def work(self) -> Work: ...
    @property
    def remaining(self) -> Sequence[tuple[str, Work]]: ...
    @property
    def bytes_needed(self) -> int: ...
    @property
    def can_park(self) -> bool: ...
    @property
    def service_class(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def arrival_s(self) -> float: ...
    @property
    def behind_s(self) -> float: ...
    @property
    def due_s(self) -> float: ...


S = TypeVar("S", bound=StateView)


class Runner(Protocol[S]):
    """Executes the steps of one model. It never decides what runs next.

    Errors: `plan` and `launch` may raise; the scheduler then calls `cancel` on what was planned and runs the states
    again one by one, so that the one at fault fails alone. Hence until `launch` returns no state has advanced. After
    that it is too late: what fails for a row while its results are collected is that row's output, a Failed event; if
    `collect` raises, all states of the batch fail. `park` and `resume` may raise for their state alone.
    """

    @property
    def model(self) -> str: ...

    @property
    def lane(self) -> str: ...

    def admit(self, request: Request) -> S | Refused | Shortfall:
        """A state for the request; or why it can never run; or what is missing at the moment."""
        ...

    def plan(self, states: Sequence[S], quantum: Quantum) -> Batch | Shortfall:
        """Takes states in the given order as far as the quantum goes, and leases all they need.

        The runner may leave states out (batching must pay). With `Blocks` the leases reach to the end of the step.
        On a Shortfall nothing stays leased.
        """
        ...

    def launch(self, batch: Batch, slot: Slot) -> Pending:
        """Enqueues the device work and advances the states; never waits for the device."""
        ...

    def collect(self, batch: Batch, pending: Pending) -> Sequence[StepOutput]:
        """Delivers what a done launch gave, for each state that has something to tell."""
        ...

    def cancel(self, batch: Batch) -> None:
        """Takes back what `plan` leased for a batch that will not be launched or whose launch raised.

        Of an open step (Blocks) nothing is kept: its states are as they were before the step's first group.
        """
        ...

    def park(self, state: S) -> Pending | Shortfall:
        """Copies what the state holds alone to the host tier and frees its device bytes; Shortfall: host tier full."""
        ...

    def resume(self, state: S) -> Pending | Shortfall:
        """The way back, bit-equal; Shortfall: the state's whole need does not fit now, nothing was leased."""
        ...

    def stop(self, state: S) -> Sequence[Event]:
        """The good end at the edge's wish (a stop string was seen): the state's Finished event. `release` follows."""
        ...

    def release(self, state: S, error: HemiolaError | None = None) -> None:
        """Frees all that the state holds, from any phase; bytes that steps in flight may touch retire first.

        `error` is what it failed of, for those who wait for it (a chore has no events to tell it by).
        """
        ...

    def chores(self) -> Iterable[S]:
        """States without a request (text encodings for others, loads) that wait to be scheduled; each is given once."""
        ...

    def let_go(self, program: str | None) -> bool:
        """Gives up what is kept for a program, which has ended; None: for the one that has waited longest, since
        nobody else can go on. False if there was nothing.
        """
        ...
