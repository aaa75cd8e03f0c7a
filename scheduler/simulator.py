"""Replays requests against the real scheduler and policies with modelled costs on a virtual clock: no device, no model.

A simulated request is a list of steps, each cut in tokens or blocks and with its Work; a `SimulatedRunner` answers for
them as a real runner would. Good for comparing policies over hours of load in seconds, and as the fake in tests.
"""

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Finished, Image, Pixels, Progress, Token, Usage
from hemiola.core.request import MediaRequest, Request, TextRequest
from hemiola.core.service import completion_due_s, token_due_s
from hemiola.core.step import (
    Batch,
    Blocks,
    Pending,
    Quantum,
    Refused,
    Shortfall,
    Slot,
    StepOutput,
    Tokens,
    Work,
    blocks_work,
    total_work,
)
from hemiola.core.tracing import StepTrace

from .cost_model import CostModel
from .lanes import Lanes
from .policy import POLICIES, Limits
from .scheduler import Scheduler

_BLOCK = Work(rows=1, new_tokens=64, blocks=1)


@dataclass(slots=True)
class VirtualClock:
    """Seconds that pass only when a simulated step takes them."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True, slots=True)
class Elapsed:
    """A simulated launch: done at once, having taken `seconds`."""

    seconds: float

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        """Nothing is left to wait for."""


@dataclass(slots=True, eq=False)
class SimulatedState:
    """A request as steps still to do. `block` is how far the open step has come."""

    request: Request
    steps: deque[tuple[str, int]]  # (phase, blocks), or ("prefill", tokens), or ("decode", 1)
    num_generated: int = 0
    last_s: float = 0.0
    block: int = 0
    batch: Any = None
    context: int = 0
    is_parked: bool = False

    def __getattr__(self, name: str) -> Any:  # id, model, tenant, service_class, priority, arrival_s
        return getattr(self.request, name)

    @property
    def lane(self) -> str:
        return "language" if isinstance(self.request, TextRequest) else "media"

    @property
    def phase(self) -> str:
        return self.steps[0][0]

    @property
    def is_ready(self) -> bool:
        return bool(self.steps) and not self.is_parked

    @property
    def waiting_for(self) -> str | None:
        return "resume" if self.is_parked else None

    @property
    def batch_key(self) -> Hashable:
        return id(self.batch) if self.batch is not None else (self.lane, self.is_text or self.phase)

    @property
    def cost_key(self) -> Hashable:
        return self.request.model, self.is_text or self.phase

    @property
    def is_text(self) -> bool:
        return isinstance(self.request, TextRequest)

    @property
    def cut(self) -> Quantum:
        size = self.steps[0][1]
        if self.is_text:
            return Tokens(size)
        return Blocks(self.block, size - 1, (_BLOCK,) * (size - self.block))

    @property
    def work(self) -> Work:
        size = self.steps[0][1]
        if self.is_text:
            return Work(rows=1, new_tokens=size, context_tokens=self.context + size, attended_pairs=self.context * size)
        return Work(rows=1, new_tokens=64 * size, blocks=size)

    @property
    def remaining(self) -> Sequence[tuple[str, Work]]:
        return [(phase, Work(rows=1, new_tokens=64 * size, blocks=size)) for phase, size in self.steps]

    @property
    def bytes_needed(self) -> int:
        return 1

    @property
    def can_park(self) -> bool:
        return self.batch is None and not self.is_parked

    @property
    def due_s(self) -> float:
        if self.is_text:
            return token_due_s(self.request, self.num_generated, self.last_s)
        return completion_due_s(self.request)


@dataclass(eq=False)
class SimulatedRunner:
    """Steps of one pretended model, `max_states` of which fit into memory at once."""

    model: str
    lane: str
    clock: VirtualClock
    seconds: Callable[[Work], float]
    max_batch: int = 256
    max_states: float = math.inf
    states: set[int] = field(default_factory=set)
    fail: Callable[[Batch], None] = lambda batch: None
    version: int = 0

    def admit(self, request: Request) -> SimulatedState | Refused | Shortfall:
        if len(self.states) >= self.max_states:
            return Shortfall(1)
        state = SimulatedState(request, deque(_steps_of(request)))
        self.states.add(id(state))
        return state

    def plan(self, states: Sequence[SimulatedState], quantum: Quantum) -> Batch | Shortfall:
        if isinstance(quantum, Blocks):
            return self._plan_blocks(states[: self.max_batch], quantum)
        rows: list[tuple[SimulatedState, int]] = []
        left = quantum.max if isinstance(quantum, Tokens) else 1
        for state in states:
            if left and len(rows) < self.max_batch:
                rows.append((state, min(left, state.steps[0][1])))
                left -= rows[-1][1]
        work = total_work(Work(1, n, s.context + n, s.context * n) for s, n in rows)
        return Batch([state for state, _ in rows], work, rows[0][0].cost_key, quantum, rows)

    def _plan_blocks(self, states: Sequence[SimulatedState], quantum: Blocks) -> Batch:
        count = quantum.last - quantum.first + 1
        work = blocks_work([[_BLOCK] * count] * len(states))
        return Batch(states, work, states[0].cost_key, quantum, [(state, count) for state in states])

    def launch(self, batch: Batch, slot: Slot) -> Elapsed:
        self.fail(batch)
        seconds = self.seconds(batch.work)
        self.clock.now_s += seconds
        for state, count in batch.payload:
            phase, size = state.steps[0]
            state.context += count if state.is_text else 0
            state.block += 0 if state.is_text else count
            state.last_s = self.clock.now_s
            left = size - (count if state.is_text else state.block)
            state.batch = batch.payload[0] if left and not state.is_text else None
            if left and state.is_text:
                state.steps[0] = (phase, left)
            elif not left:
                state.steps.popleft()
                state.block = 0
                self.version += 1  # the carry is free again
                state.num_generated += state.is_text
        return Elapsed(seconds)

    def collect(self, batch: Batch, pending: Pending) -> Sequence[StepOutput]:
        outputs = []
        for state, _ in batch.payload:
            request_id = state.request.id
            events: list[Event] = []
            if state.is_text and (not state.steps or state.phase == "decode"):
                events.append(Token(request_id, 0))
            elif not state.is_text and state.block == 0:
                events.append(Progress(request_id, "step", 0, len(state.steps)))
            if not state.steps:
                events += [] if state.is_text else [Image(request_id, Pixels(b"", 1, 0, 0))]
                events.append(Finished(request_id, "length" if state.is_text else "done", Usage()))
            outputs.append(StepOutput(state, events, not state.steps))
        return outputs

    def cancel(self, batch: Batch) -> None:
        for state, _ in batch.payload:
            state.block, state.batch = 0, None

    def park(self, state: SimulatedState) -> Elapsed | Shortfall:
        state.is_parked = True
        self._free(state)
        return Elapsed(0.0)

    def resume(self, state: SimulatedState) -> Elapsed | Shortfall:
        if len(self.states) >= self.max_states:
            return Shortfall(1)
        self.states.add(id(state))
        state.is_parked = False
        return Elapsed(0.0)

    def stop(self, state: SimulatedState) -> Sequence[Event]:
        return [Finished(state.request.id, "stop")]

    def release(self, state: SimulatedState, error: HemiolaError | None = None) -> None:
        self._free(state)

    def let_go(self, program: str | None) -> bool:
        return False

    def chores(self) -> Iterable[SimulatedState]:
        return ()

    def _free(self, state: SimulatedState) -> None:
        self.states.discard(id(state))
        self.version += 1


def _steps_of(request: Request) -> list[tuple[str, int]]:
    if isinstance(request, TextRequest):
        return [("prefill", len(request.token_ids))] + [("decode", 1)] * (request.sampling.max_tokens - 1)
    assert isinstance(request, MediaRequest)
    return [("encode", 4)] + [("denoise", 8)] * request.num_inference_steps + [("decode", 6 * request.num_frames)]


class Simulation:
    """A scheduler over simulated runners; `run` replays requests at their arrival times.

    Args:
        max_states: how many requests fit into memory at once.
        emit: told every event; without it, `events` collects them with their times.
    """

    def __init__(
        self,
        policy: str = "deadline",
        limits: Limits | None = None,
        max_states: float = math.inf,
        emit: Callable[[Event], None] | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.events: list[tuple[float, Event]] = []
        self.trace = StepTrace(capacity=1_000_000)
        costs = CostModel()
        # Roughly one CPU core: 10 ms a decode step, 20 ms a block, 0.2 ms a prompt token.
        self.text = SimulatedRunner("text", "language", self.clock, lambda w: 0.008 + 2e-4 * w.new_tokens)
        self.media = SimulatedRunner("media", "media", self.clock, lambda w: 0.02 * w.blocks)
        self.text.states = self.media.states = set()  # one memory
        self.text.max_states = self.media.max_states = max_states
        self.scheduler = Scheduler(
            [self.text, self.media],
            lanes=Lanes.single(),
            policy=POLICIES[policy](costs, limits or Limits()),
            costs=costs,
            emit=emit or (lambda event: self.events.append((self.clock.now_s, event))),
            clock=self.clock,
            memory_version=lambda: self.text.version + self.media.version,
            trace=self.trace,
        )

    def run(self, requests: Iterable[Request], max_steps: int = 1_000_000) -> None:
        """Until all is done. Raises AssertionError if it takes more than `max_steps` iterations."""
        coming = deque(sorted(requests, key=lambda r: r.arrival_s))
        for _ in range(max_steps):
            while coming and coming[0].arrival_s <= self.clock.now_s:
                self.scheduler.submit(coming.popleft())
            if self.scheduler.step():
                continue
            if not coming:
                assert self.scheduler.is_idle, "The simulation stands still with requests running."
                return
            self.clock.now_s = max(self.clock.now_s, coming[0].arrival_s)
        raise AssertionError(f"Not done after {max_steps} iterations.")
