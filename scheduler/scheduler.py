"""The step-level scheduler: decides which step of which request runs next, a few hundred times a second.

An iteration is three lines: choose, launch, collect. Between them requests come in (`admission`), end, or make room for
others (`pressure`). Sees requests' terms and states' views; knows no model and no tensor. One thread calls it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hemiola.core.errors import HemiolaError, RequestAborted, StepFailed
from hemiola.core.events import Event, Failed
from hemiola.core.request import Request
from hemiola.core.step import Batch, Runner, Shortfall
from hemiola.core.tracing import StepRecord, StepTrace

from .admission import Admission
from .cost_model import CostModel
from .lanes import Lane, Lanes, LaunchedStep
from .policy import Choice, Group, Policy
from .pressure import Pressure, lateness
from .running import Running, RunningSet

log = logging.getLogger(__name__)


class Scheduler:
    """One scheduler per device group.

    Args:
        runners: one per served model.
        lanes: where steps run.
        policy, costs: order of steps, and what they are thought to cost.
        emit: told every event, in order, on the scheduler's thread.
        clock: seconds; shared with whoever stamps arrivals.
        memory_version: grows when bytes became free; then whoever waits for memory is tried again.
        trace: gets a record per collected step.
        is_called: whether somebody outside wants something, so that waiting for the device must be cut short.
    """

    def __init__(
        self,
        runners: Iterable[Runner[Any]],
        *,
        lanes: Lanes,
        policy: Policy,
        costs: CostModel,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        memory_version: Callable[[], int],
        trace: StepTrace,
        is_called: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_called = is_called
        self.runners = {runner.model: runner for runner in runners}
        self.lanes = lanes
        self.costs = costs
        self.trace = trace
        self._policy = policy
        self._emit = emit
        self._clock = clock
        self.running = RunningSet(lambda state: lanes.serving(state.lane).depth)
        self._pressure = Pressure(self.running, memory_version, self._fail_state)
        self._admission = Admission(self.runners, self.running, self._pressure, memory_version, emit)

    # What the outside asks for.

    def submit(self, request: Request) -> None:
        """Queues a request; its model must be served here."""
        self._admission.queue(request)

    def abort(self, request_id: str) -> bool:
        """Ends a request at once with Failed(`request_aborted`); False if there is none of that id."""
        if self._admission.remove(request_id):
            self._emit_failure(request_id, RequestAborted("The request was aborted."))
            return True
        entry = self.running.find(request_id)
        if entry is None:
            return False
        self._fail(entry, RequestAborted("The request was aborted."))
        return True

    def finish(self, request_id: str) -> bool:
        """Ends a running request well, because its answer is complete as it is; False if it is not running."""
        entry = self.running.find(request_id)
        if entry is None:
            return False
        events = entry.runner.stop(entry.state)
        self._end(entry)
        for event in events:
            self._emit(event)
        return True

    def end_program(self, program: str) -> None:
        """No request of it is left and none will come: what was kept for it may be evicted."""
        for runner in self.runners.values():
            runner.let_go(program)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued, running or in flight."""
        return not (self._admission.num_queued or self.running.entries or self.lanes.num_in_flight)

    @property
    def num_queued(self) -> int:
        return self._admission.num_queued

    @property
    def num_parks(self) -> int:
        """How often a state was parked to make room for another."""
        return self._pressure.parks.total()

    @property
    def parks(self) -> Mapping[str, int]:
        """The same by model."""
        return self._pressure.parks

    # The loop.

    def step(self) -> bool:
        """One iteration. False if there was nothing to do but wait for what is outside."""
        self._take_in()
        launched = False
        for lane in self.lanes.all:
            if lane.has_room and not self.lanes.is_better_later(lane, self._clock()):
                choice = self._choose(lane)
                launched |= choice is not None and self._launch(choice)
        collected = self._collect(wait=not launched)
        if launched or collected or self._pressure.is_copying or self.lanes.num_in_flight:
            return True
        return self._break_deadlock()

    def _take_in(self) -> None:
        self._pressure.settle()
        self._admission.admit()
        for runner in self.runners.values():
            for chore in runner.chores():
                self.running.add(chore, runner)

    def _choose(self, lane: Lane) -> Choice | None:
        groups = self._groups(lane)
        return self._policy.choose(groups, self._clock(), self.lanes.use_of(lane)) if groups else None

    def _groups(self, lane: Lane) -> list[Group]:
        """Ready states, grouped by what may share a launch. States whose batch failed stand alone."""
        groups: dict[Any, Group] = {}
        serving = self.lanes.serving
        runner = batch_key = group = None
        for state, entry in self.running.entries.items():
            if entry.in_flight >= entry.depth or entry.is_held or not state.is_ready:
                continue
            if entry.is_suspect or entry.runner is not runner or state.batch_key != batch_key:
                if serving(state.lane) is not lane:
                    continue
                runner, batch_key = entry.runner, state.batch_key
                key = (runner, batch_key, state if entry.is_suspect else None)
                group = groups.get(key)
                if group is None:
                    group = groups[key] = Group(runner, state.lane, [])
            group.states.append(state)  # type: ignore[union-attr]  # set whenever runner is
            if entry.is_suspect:
                runner = None
        return list(groups.values())

    def _launch(self, choice: Choice) -> bool:
        """Plans and launches; relieves memory or isolates the state at fault where that fails."""
        runner = choice.group.runner
        batch = self._plan(choice)
        if batch is None:
            return True
        lane = self.lanes.serving(choice.group.lane)
        slot = lane.next_slot(self._clock(), choice.sm_share)
        use = self.lanes.use_of(lane)._replace(sm_share=choice.sm_share)
        phase, cost_key = batch.states[0].phase, use.key(batch.cost_key)
        predicted_s = self.costs.seconds(cost_key, batch.work)
        try:
            pending = runner.launch(batch, slot)
        except Exception as error:
            runner.cancel(batch)
            self._isolate(batch.states, error)
            return True
        launch_s = self._clock() - slot.now_s
        if lane.is_clear and not pending.done():
            self.costs.observe_launch(batch.cost_key, launch_s)
        lane.steps.append(LaunchedStep(runner, batch, pending, slot, phase, cost_key, predicted_s, launch_s))
        self.running.launched(batch.states)
        return True

    def _plan(self, choice: Choice) -> Batch | None:
        """The batch; fewer states when memory is short, then fewer running requests. None: try again later."""
        runner, states = choice.group.runner, choice.group.states
        while True:
            try:
                planned = runner.plan(states, choice.quantum)
            except Exception as error:
                self._isolate(states, error)
                return None
            if not isinstance(planned, Shortfall):
                return planned
            if len(states) > 1:
                states = states[: (len(states) + 1) // 2]
            elif not self._pressure.relieve(planned, lateness(states[0], states[0].due_s)):
                self._pressure.hold(states[0], planned)
                return None

    def _collect(self, wait: bool) -> bool:
        """Delivers every step that is done; with `wait`, waits for the first of a lane if none is."""
        if wait:
            self.lanes.wait_for_any(self._is_called)
        collected = False
        for lane in self.lanes.all:
            while lane.steps and lane.steps[0].pending.done():
                self._deliver(lane.take_first(self._clock()))
                collected = True
        return collected

    def _deliver(self, step: LaunchedStep) -> None:
        batch = step.batch
        seconds = step.pending.seconds
        if seconds is not None:
            self.costs.observe(step.cost_key, batch.work, seconds)
            self._policy.account(batch.states, seconds)
        self.running.collected(batch.states)
        self._record(step, seconds)
        try:
            outputs = step.runner.collect(batch, step.pending)
        except Exception as error:
            for state in batch.states:
                self._fail_state(state, error)
            return
        for output in outputs:
            entry = self.running.of(output.state)
            if entry is None:  # ended while the step was in flight: nothing more is told
                continue
            if output.is_final:
                self._end(entry)
            for event in output.events:
                self._emit(event)

    def _record(self, step: LaunchedStep, seconds: float | None) -> None:
        self.trace.record(
            StepRecord(
                lane=step.slot.lane,
                model=step.runner.model,
                phase=step.phase,
                rows=len(step.batch.states),
                start_s=step.slot.now_s,
                end_s=step.slot.now_s + seconds if seconds is not None else self._clock(),
                predicted_s=step.predicted_s,
                work=step.batch.work,
                request_ids=tuple([state.id for state in step.batch.states]),
                quantum=type(step.batch.quantum).__name__.lower(),
                sm_share=step.slot.sm_share,
            )
        )

    # Endings.

    def _isolate(self, states: Sequence[Any], error: Exception) -> None:
        """A step over these states raised. Alone, a state is at fault; together, each must run alone to show which."""
        log.warning("A %s step over %d states failed.", states[0].phase, len(states), exc_info=error)
        if len(states) == 1:
            self._fail_state(states[0], error)
            return
        self.running.suspect(states)

    def _fail_state(self, state: Any, error: Exception) -> None:
        entry = self.running.of(state)
        if entry is None:
            return
        if not isinstance(error, HemiolaError):
            wrapped = StepFailed(f"The {state.phase} step failed: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        self._fail(entry, error)

    def _fail(self, entry: Running, error: HemiolaError) -> None:
        self._end(entry, error)
        if entry.is_request:
            self._emit_failure(entry.state.id, error)

    def _end(self, entry: Running, error: HemiolaError | None = None) -> None:
        self.running.remove(entry)
        entry.runner.release(entry.state, error)

    def _emit_failure(self, request_id: str, error: HemiolaError) -> None:
        self._emit(Failed(request_id, error.code, error.message))

    def _break_deadlock(self) -> bool:
        """Nothing moves. If want of memory is why, what is kept for programs is given up, somebody comes back, or ends
        loudly; False if that is not why.
        """
        is_queue_stuck = not self.running.entries and self.num_queued > 0
        if (self._pressure.is_stuck or is_queue_stuck) and any(r.let_go(None) for r in self.runners.values()):
            return True
        if self._pressure.is_stuck:
            victim = self._pressure.unstick()
            if victim is not None:
                self._fail(*victim)
            return True
        return not self.running.entries and self._admission.unstick()
