"""The engine's own CPU time per step, outside any model: 256 decoding rows on a runner that computes nothing."""

import random
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hemiola.core.events import Event, Token
from hemiola.core.request import Request, TextRequest
from hemiola.core.step import Batch, Quantum, Slot, StepOutput, Tokens, Work
from hemiola.core.tracing import StepTrace
from hemiola.scheduler.cost_model import CostModel
from hemiola.scheduler.lanes import Lanes
from hemiola.scheduler.policy import Deadline, Limits
from hemiola.scheduler.scheduler import Scheduler

from ..engine import Engine
from .report import Report, cost, machine_name

NUM_ROWS = 256
LIMIT_US = 600.0
DECODE_BATCH = 8
DECODE_SHARE = 0.05
NUM_STEPS = 50


class _State:
    """A row that decodes for ever."""

    __slots__ = ("id",)
    model = "null"
    lane = "language"
    phase = "decode"
    is_ready = True
    waiting_for = None
    batch_key = cost_key = "decode"
    cut = Tokens(1)
    work = Work(rows=1, new_tokens=1, context_tokens=100, attended_pairs=100)
    remaining: tuple[()] = ()
    bytes_needed = 0
    can_park = False
    service_class = "interactive"
    tenant = "default"
    priority = 0
    arrival_s = behind_s = due_s = 0.0

    def __init__(self, request_id: str) -> None:
        self.id = request_id


class _Done:
    """A launch that took no time."""

    seconds = 0.01

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        """Nothing to wait for."""


class _NullRunner:
    """Answers every step with a token per row."""

    model = "null"
    lane = "language"

    def admit(self, request: Request) -> _State:
        return _State(request.id)

    def plan(self, states: Sequence[_State], quantum: Quantum) -> Batch:
        return Batch(states, Work(rows=len(states), new_tokens=len(states)), "decode", quantum)

    def launch(self, batch: Batch, slot: Slot) -> _Done:
        return _Done()

    def collect(self, batch: Batch, pending: Any) -> Sequence[StepOutput]:
        return [StepOutput(state, (Token(state.id, 5),)) for state in batch.states]

    def cancel(self, batch: Batch) -> None:
        """Holds nothing."""

    def park(self, state: _State) -> _Done:
        return _Done()

    def resume(self, state: _State) -> _Done:
        return _Done()

    def stop(self, state: _State) -> Sequence[Event]:
        return ()

    def release(self, state: _State, error: Exception | None = None) -> None:
        """Holds nothing."""

    def let_go(self, program: str | None) -> bool:
        return False

    def chores(self) -> Iterable[_State]:
        return ()


def run(*, repeats: int, threads: int) -> Report:
    """CPU time of the thread, not wall-clock time: what the engine takes, whatever else the machine does."""
    at_256, at_8 = (_microseconds_per_step(rows, repeats) for rows in (NUM_ROWS, DECODE_BATCH))
    decode_us = _decode_step_us(threads)
    scenarios = (
        cost(f"CPU time a step, {NUM_ROWS} rows, null runner", at_256, "us", LIMIT_US, 1.0),
        cost(
            f"CPU time a step, {DECODE_BATCH} rows, against 5 % of a decode step",
            at_8,
            "us",
            DECODE_SHARE * decode_us,
            1.0,
        ),
    )
    return Report("overhead", machine_name(), "float32", threads, scenarios)


def _microseconds_per_step(num_rows: int, repeats: int) -> float:
    costs = CostModel()
    scheduler = Scheduler(
        [_NullRunner()],
        lanes=Lanes.single(),
        policy=Deadline(costs, Limits()),
        costs=costs,
        emit=lambda event: None,
        clock=time.monotonic,
        memory_version=lambda: 0,
        trace=StepTrace(),
    )
    for i in range(num_rows):
        scheduler.submit(TextRequest(id=str(i), model="null", token_ids=(1,)))

    def per_step() -> float:
        start = time.thread_time()
        for _ in range(NUM_STEPS):
            scheduler.step()
        return (time.thread_time() - start) / NUM_STEPS * 1e6

    per_step()
    return statistics.median(per_step() for _ in range(max(repeats, 5)))


def _decode_step_us(threads: int) -> float:
    """The device time of a decode step of the demo chat model with 8 rows."""
    rng = random.Random(0)
    with Engine("hemiola-tiny-chat", threads=threads) as engine:
        torch.set_num_threads(threads)
        prompts = [[rng.randrange(300, 5000) for _ in range(64)] for _ in range(DECODE_BATCH)]
        streams = [engine.stream_complete(ids, max_tokens=64, temperature=0.0, ignore_eos=True) for ids in prompts]
        for stream in streams:
            stream.result()
        steps = [r.seconds for r in engine.trace.records if r.work.new_tokens == r.rows == DECODE_BATCH]
    return statistics.median(steps) * 1e6
