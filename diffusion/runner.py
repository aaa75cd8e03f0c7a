"""Executes the steps of one diffusion model, of whatever family. Implements `core.step.Runner` for MediaRequests.

A step (encoding prompts, one denoise step, a decode) is opened over a batch of states, runs in as many groups of blocks
as the scheduler grants, and changes its states when the last group was computed. Knows nothing of what blocks compute.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hemiola.core.config import LoadFormat
from hemiola.core.device import InFlight
from hemiola.core.errors import CannotFit, HemiolaError, InvalidRequest, UnsupportedModel
from hemiola.core.events import Event
from hemiola.core.graphs import GraphPool
from hemiola.core.memory import Arena, Lease
from hemiola.core.pending import Done, Stopwatch
from hemiola.core.request import MediaRequest, Request
from hemiola.core.staging import to_device
from hemiola.core.step import (
    Batch,
    Blocks,
    Pending,
    Quantum,
    Refused,
    Shortfall,
    Slot,
    StepOutput,
)
from hemiola.core.text_encoder import TextEncoder
from hemiola.core.warm_up import WarmUp

from .batching import MAX_ROWS, Batching
from .block_graphs import BlockGraphs
from .carry_store import CarryStore
from .conditions import ConditionKey, Conditions
from .families import Family, load_family
from .job import Steps, make_job, steps_of
from .open_batch import OpenBatch
from .phases import (
    DecodePhase,
    DenoisePhase,
    EncodePhase,
    Group,
    Phase,
    drop_conditions,
    finished,
    outputs,
    take_conditions,
)
from .stage import Stage
from .state import LANE, DiffusionState
from .warming import warm_ups


class DiffusionRunner:
    """One served pipeline.

    Args:
        name: what it is served as.
        pipeline: its folder, or the family that was loaded from one.
        arena: where latents, conditions and carries are leased.
        dtype, device, load_format: of the weights ("dummy": random ones, from configs alone).
        text_encoders: per encoder name, the served language model that hemiola.json says is one.
        batching: says how many states share a step, and learns it; without it, as many as there are.
        graph_pool: where blocks are captured as graphs; None: none are.
        sm_shares: of the device, those that steps may get: what warming up builds for.

    Fields:
        graphs: of blocks, with how many there are and what their slots take; None without a pool.

    Raises:
        ModelNotFound, UnsupportedModel, CorruptWeights: see `families.load_family`.
    """

    lane = LANE

    def __init__(
        self,
        name: str,
        pipeline: str | Path | Family,
        arena: Arena,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        text_encoders: Mapping[str, TextEncoder] | None = None,
        batching: Batching | None = None,
        load_format: LoadFormat = "auto",
        graph_pool: GraphPool | None = None,
        sm_shares: Sequence[float] = (1.0,),
    ) -> None:
        if isinstance(pipeline, str | Path):
            pipeline = load_family(pipeline, dtype=dtype, device=device, load_format=load_format)
        self.model = name
        self.family: Family = pipeline
        self.edge = pipeline.edge
        self._arena = arena
        self.device = torch.device(device)
        self.batching = batching
        self._encoder = self._text_encoder(text_encoders or {})
        self.graphs = None if graph_pool is None else BlockGraphs(name, arena, graph_pool)
        self.sm_shares = tuple(sm_shares)
        self._library = Conditions(arena, (name, "encode"))
        self._states: dict[DiffusionState, None] = {}
        self._carries = count()
        self._cached_steps = lru_cache(maxsize=256)(lambda name, shape: steps_of(getattr(pipeline, name), shape))
        self._phases: dict[str, Phase] = {
            "encode": EncodePhase(pipeline, self._library, self._states),
            "denoise": DenoisePhase(pipeline),
            "decode": DecodePhase(pipeline),
        }

    # Coming and going

    def _too_large(self, request: MediaRequest, nbytes: int) -> CannotFit:
        """Also where nothing was said of a size, and the model's own is meant."""
        is_clip = self.edge.kind == "video"
        what = f"A clip of {request.num_frames} frames of" if is_clip else "A picture of"
        lower = "'size' or 'num_frames'" if is_clip else "'size'"
        return CannotFit(
            f"{what} {request.width}x{request.height} pixels by '{self.model}'",
            nbytes,
            self._arena.nbytes,
            f"Lower {lower}, or raise the engine's 'memory_bytes'.",
        )

    def admit(self, request: Request) -> DiffusionState | Refused | Shortfall:
        if not isinstance(request, MediaRequest):
            kind = self.edge.kind
            return Refused(InvalidRequest("model", f"Invalid 'model': '{self.model}' makes {kind}s, not text."))
        wrong = self.edge.validate(request)
        if wrong is not None:
            return Refused(wrong)
        job = make_job(request, self.family, self.model, self._steps_of)
        for need in job.needs:
            if not self._arena.could_ever_lease(need):
                return Refused(self._too_large(request, sum(need.general)))
        for need in job.needs:
            if not self._arena.can_lease(need):
                return Shortfall(sum(need.general))
        lease = self._arena.lease(job.state_bytes, request.id)
        if isinstance(lease, Shortfall):
            return lease
        state = DiffusionState(job, self._library, lease)
        self._states[state] = None
        try:
            state.noise = self.family.noise(request)
            self._look_for_conditions(state)
        except Exception:
            self.release(state)
            raise
        return state

    def _steps_of(self, stage: Stage[Any], shape: Any) -> Steps:
        return self._cached_steps(stage.name, shape)

    def release(self, state: DiffusionState, error: HemiolaError | None = None) -> None:
        if state.is_released:
            return
        state.is_released = True
        del self._states[state]
        drop_conditions(state)
        if state.lease is not None:
            state.lease.release()
            state.lease = None
        if state.parked is not None:
            state.parked.release()
            state.parked = None
        if state.open is not None:
            state.open.states.remove(state)
            if not state.open.states:
                self._abandon(state.open)
            state.open = None

    def stop(self, state: DiffusionState) -> Sequence[Event]:
        return [finished(state, "stop")]

    def let_go(self, program: str | None) -> bool:
        """Nothing is kept for programs: conditions are evicted by what they are worth."""
        return False

    def chores(self) -> Iterable[DiffusionState]:
        return ()

    def warm_ups(self) -> Iterable[WarmUp]:
        """See `core.warm_up.HasWarmUps`."""
        return warm_ups(self)

    # Steps

    def plan(self, states: Sequence[DiffusionState], quantum: Quantum) -> Batch | Shortfall:
        assert isinstance(quantum, Blocks), f"diffusion steps are cut in blocks, not {quantum}"
        opened = states[0].open or self._open(states, quantum)
        if isinstance(opened, Shortfall):
            return opened
        first, last = opened.next_block, min(quantum.last, opened.last_block)
        assert first == quantum.first <= last, f"block {first} is next, and {quantum.first} to {last} was granted"
        return Batch(
            list(opened.states),
            opened.work(first, last),
            (self.model, opened.stage.name),
            Blocks(first, last),
            Group(opened, first, last),
        )

    def launch(self, batch: Batch, slot: Slot) -> Pending:
        group: Group = batch.payload
        opened = group.open
        stopwatch = Stopwatch(self.device)
        with torch.inference_mode():
            results = opened.run(group.first, group.last, slot)
            if results is not None:
                group.results = self._phases[opened.stage.name].commit(opened, results, slot)
        opened.next_block = group.last + 1
        if results is not None:
            self._close(opened)
        return stopwatch.stop()

    def collect(self, batch: Batch, pending: Pending) -> Sequence[StepOutput]:
        group: Group = batch.payload
        group.open.seconds += pending.seconds or 0.0
        if self.batching is not None and group.last == group.open.last_block:
            self.batching.learn(group.open, group.open.seconds)
        return outputs(group, self.edge.kind)

    def cancel(self, batch: Batch) -> None:
        group: Group = batch.payload
        self._phases[group.open.stage.name].undo(group.open, group.results)
        group.results = ()
        self._close(group.open)

    def _open(self, states: Sequence[DiffusionState], quantum: Blocks) -> OpenBatch | Shortfall:
        """A batch of as many of these states, in their order, as pay and fit; of the first one at least."""
        phase = self._phases[states[0].phase]
        states = self._within_limits(states[:MAX_ROWS])
        chosen = states if self.batching is None else self.batching.choose(states)
        while True:
            with self._keeping_room_for(states[0]):
                opened = phase.begin(chosen)
            if not isinstance(opened, Shortfall) and opened.is_stored(quantum.last):
                sizes = opened.carry_sizes
                lease = self._arena.lease(sum(sizes.values()), f"carry:{self.model}:{next(self._carries)}")
                if isinstance(lease, Shortfall):
                    phase.undo(opened, ())
                    opened = lease
                else:
                    opened.store = CarryStore(lease, sizes)
            if not isinstance(opened, Shortfall):
                opened.graphs = self.graphs
                for state in chosen:
                    state.open = opened
                return opened
            if len(chosen) == 1:
                return opened
            chosen = chosen[: len(chosen) // 2]

    def _within_limits(self, states: Sequence[DiffusionState]) -> Sequence[DiffusionState]:
        """As many as have together no more pixels than one request may: that is what memory is kept for."""
        most, pixels = self.edge.limits.max_pixels, 0
        for num, state in enumerate(states):
            pixels += state.job.request.width * state.job.request.height
            if most is not None and num > 0 and pixels > most:
                return states[:num]
        return states

    @contextmanager
    def _keeping_room_for(self, state: DiffusionState) -> Iterator[None]:
        """What is leased meanwhile stays out of some room for the state's largest carry, if there is such room now.

        Conditions stay for long, and in the middle of a small arena they would leave the carry no place.
        """
        carry = self._arena.lease(state.need.general[-1], state.id) if state.missing else None
        try:
            yield
        finally:
            if isinstance(carry, Lease):
                self._arena.put_back(carry)

    def _close(self, opened: OpenBatch) -> None:
        """The step is over, or taken back: its states are free for another one."""
        opened.drop()
        for state in opened.states:
            if state.open is opened:
                state.open = None

    def _abandon(self, opened: OpenBatch) -> None:
        """All rows are dead."""
        self._phases[opened.stage.name].undo(opened, ())
        opened.drop()

    # Parking

    def park(self, state: DiffusionState) -> Pending | Shortfall:
        assert state.can_park and state.lease is not None, f"'{state.id}' cannot be parked in the middle of a step"
        copy = self._arena.host.store(_to_park(state), state.id)
        if isinstance(copy, Shortfall):
            return copy
        state.parked, state.noise = copy, None
        state.lease.release()
        state.lease = None
        drop_conditions(state)
        return Done(0.0)

    def resume(self, state: DiffusionState) -> Pending | Shortfall:
        assert state.parked is not None, f"'{state.id}' is not parked"
        need = state.need
        if not self._arena.can_lease(need):
            return Shortfall(sum(need.general))
        # The carry's place is held for the moment, so that what comes back does not lie in the middle of it.
        leases = self._arena.lease_all((need.general[0], need.general[-1]), state.id)
        if isinstance(leases, Shortfall):
            return leases
        state.lease, carry = leases
        try:
            state.parked.load_into(state.tensors(state.num_done))
            state.parked.release()
            state.parked = None
            self._look_for_conditions(state)
        finally:
            self._arena.put_back(carry)
        return Done(0.0)

    # Conditions

    def _look_for_conditions(self, state: DiffusionState) -> None:
        """Holds those that are there, and asks the text encoder for the others where that is another model."""
        take_conditions(state)
        shared = self.edge.files.shared_encoder
        if shared is None or self._encoder is None:
            return
        for wanted in state.missing:
            encoding = self._encoder.encode(wanted.key.token_ids, shared.hidden_state, state.job.request)
            state.encodings[wanted.key] = encoding

    def forget_conditions(self, keys: Iterable[ConditionKey]) -> None:
        """Gives up those that are there, though somebody may come who could use them."""
        for key in keys:
            self._library.forget(key)

    @property
    def encoder_hidden_size(self) -> int:
        """Of the text encoder that is another model."""
        assert self._encoder is not None, f"'{self.model}' has a text encoder of its own"
        return self._encoder.hidden_size

    @property
    def clock(self) -> InFlight:
        """What is in flight on the device."""
        return self._arena.clock

    def _text_encoder(self, given: Mapping[str, TextEncoder]) -> TextEncoder | None:
        shared = self.edge.files.shared_encoder
        if shared is None:
            return None
        if self.edge.encoder not in given:
            raise UnsupportedModel(f"'{self.model}' shares the text encoder '{shared.shares}', which is not served.")
        return given[self.edge.encoder]


def _to_park(state: DiffusionState) -> Tensor:
    """Latents and history. Where the first denoise step is still to come they go by way of the device: what the host
    itself copied would not wait for copies under way from and to the same host memory."""
    if state.noise is None:
        return state.tensors(state.num_done)
    start = torch.cat([state.noise.unsqueeze(0), state.noise.new_zeros(state.job.num_history, *state.noise.shape)])
    return to_device(start, state.tensors(0).device)
