"""What the runner does around each stage: which rows a step has, and what becomes of its results.

`commit` runs when the last group of a step was computed, and changes states only once everything is in its place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from hemiola.core.errors import HemiolaError, StepFailed
from hemiola.core.events import Finished, Image, Pixels, Progress, Usage, Video
from hemiola.core.staging import to_device, to_host
from hemiola.core.step import Shortfall, Slot, StepOutput, failed_output

from .conditions import Conditions
from .families import Family
from .job import Wanted
from .open_batch import OpenBatch
from .stage import Clean, Noisy, Prompt
from .state import DiffusionState


@dataclass(slots=True)
class Result:
    """What a committed step has to tell: one state's progress, or its frames, which are on their way to the host."""

    state: DiffusionState
    num_done: int = 0
    frames: Tensor | None = None


class Phase(Protocol):
    """One stage, seen from the runner."""

    def begin(self, states: Sequence[DiffusionState]) -> OpenBatch | Shortfall:
        """A batch of these states that is not under way yet; leases what it is going to write."""
        ...

    def commit(self, batch: OpenBatch, results: Sequence[Tensor], slot: Slot) -> Sequence[Result]:
        """Writes what the step gave, and advances the batch's states."""
        ...

    def undo(self, batch: OpenBatch, results: Iterable[Result]) -> None:
        """Takes a committed step, or one that was only begun, back."""
        ...


class EncodePhase:
    """Prompts to conditions. Each condition is made once, for all states that miss it by then."""

    def __init__(self, family: Family, library: Conditions, running: Iterable[DiffusionState]) -> None:
        self._stage = family.encode
        self._library = library
        self._running = running

    def begin(self, states: Sequence[DiffusionState]) -> OpenBatch | Shortfall:
        wanted: dict[Any, tuple[Wanted, DiffusionState]] = {}
        for state in states:
            for each in state.missing:
                wanted.setdefault(each.key, (each, state))
        leases = self._library.begin((w.key, w.nbytes, w.steps.rest[0]) for w, _ in wanted.values())
        if isinstance(leases, Shortfall):
            return leases
        rows = list(wanted.values())
        return OpenBatch(
            self._stage,
            self._stage.blocks(rows[0][0].steps.shape),
            list(states),
            {state: state.steps for state in states},
            [each.steps.works for each, _ in rows],
            lambda: [_prompt(each, state) for each, state in rows],
            leases,
        )

    def commit(self, batch: OpenBatch, results: Sequence[Tensor], slot: Slot) -> Sequence[Result]:
        for lease, condition in zip(batch.leases.values(), results, strict=True):
            lease.tensor(condition.shape, condition.dtype).copy_(condition)
            lease.written(slot)
        self._library.finish(batch.leases)
        for state in self._running:
            if state.parked is None:
                take_conditions(state)
        for lease in batch.leases.values():
            lease.unlock()
        batch.leases = {}
        return ()

    def undo(self, batch: OpenBatch, results: Iterable[Result]) -> None:
        """Conditions that are written stay: they are right, whatever else failed."""
        self._library.abandon(batch.leases)
        batch.leases = {}


def _prompt(wanted: Wanted, state: DiffusionState) -> Prompt:
    encoding = state.encodings.get(wanted.key)
    if encoding is None:
        return Prompt(wanted.key.token_ids)
    if isinstance(encoding.error, HemiolaError):
        raise encoding.error
    if encoding.error is not None:
        raise StepFailed(f"The text encoder failed: {encoding.error}") from encoding.error
    return Prompt(wanted.key.token_ids, encoding.hidden_states)


def take_conditions(state: DiffusionState) -> None:
    """Holds what the state misses and others have made meanwhile."""
    for wanted in state.missing:
        lease = state.library.find(wanted.key)
        if lease is not None:
            state.conditions[wanted.key] = lease
            if (encoding := state.encodings.pop(wanted.key, None)) is not None:
                encoding.release()


def drop_conditions(state: DiffusionState) -> None:
    """Gives up all conditions, and the wish for those that are not there yet."""
    for lease in state.conditions.values():
        lease.unlock()
    for encoding in state.encodings.values():
        encoding.release()
    state.conditions = {}
    state.encodings = {}


class DenoisePhase:
    """One denoise step of each state, then its solver step."""

    def __init__(self, family: Family) -> None:
        self._stage = family.denoise
        self._solver = family.solver

    def begin(self, states: Sequence[DiffusionState]) -> OpenBatch:
        return OpenBatch(
            self._stage,
            self._stage.blocks(states[0].job.denoise.shape),
            list(states),
            {state: state.job.denoise for state in states},
            [state.job.denoise.works for state in states],
            lambda: [_noisy(state) for state in states],
        )

    def commit(self, batch: OpenBatch, results: Sequence[Tensor], slot: Slot) -> Sequence[Result]:
        rows = dict(zip(batch.steps, results, strict=True))
        by_shape: dict[torch.Size, list[DiffusionState]] = {}
        for state in batch.states:
            by_shape.setdefault(rows[state].shape, []).append(state)
        for states in by_shape.values():
            self._advance(states, torch.stack([rows[state] for state in states]))
        for state in batch.states:
            assert state.lease is not None
            state.lease.written(slot)
            state.num_done += 1
            if state.is_denoised:
                drop_conditions(state)
        return [Result(state, state.num_done) for state in batch.states]

    def undo(self, batch: OpenBatch, results: Iterable[Result]) -> None:
        """What the step read is still there, beside what it wrote."""
        for result in results:
            if not result.state.is_released:
                result.state.num_done = result.num_done - 1
                take_conditions(result.state)

    def _advance(self, states: Sequence[DiffusionState], predictions: Tensor) -> None:
        """Solver step of states with latents of one shape, from one half of their leases into the other."""
        before = torch.stack([state.tensors(state.num_done) for state in states]).unbind(1)
        coefficients = torch.stack([state.job.schedule.coefficients[state.num_done] for state in states])
        after = self._solver.step(coefficients, predictions, before[0], before[1:])
        for row, state in enumerate(states):
            into = state.tensors(state.num_done + 1)
            for i, tensor in enumerate((after[0], *after[1])):
                into[i].copy_(tensor[row])


def _noisy(state: DiffusionState) -> Noisy:
    job = state.job
    _start(state)
    return Noisy(
        state.tensors(state.num_done)[0],
        job.schedule.timesteps[state.num_done],
        state.held_conditions,
        job.num_padding,
        job.request.guidance_scale,
    )


def _start(state: DiffusionState) -> None:
    """Before the first step: the noise and an empty history. Part of a step, so that nobody gets the lease's bytes
    while they may still be written."""
    if state.noise is not None:
        start = state.tensors(0)
        start.zero_()
        start[0].copy_(to_device(state.noise, start.device), non_blocking=True)
        state.noise = None


class DecodePhase:
    """Latents to pixels."""

    def __init__(self, family: Family) -> None:
        self._stage = family.decode

    def begin(self, states: Sequence[DiffusionState]) -> OpenBatch:
        return OpenBatch(
            self._stage,
            self._stage.blocks(states[0].job.decode.shape),
            list(states),
            {state: state.job.decode for state in states},
            [state.job.decode.works for state in states],
            lambda: [Clean(state.tensors(state.num_done)[0]) for state in states],
        )

    def commit(self, batch: OpenBatch, results: Sequence[Tensor], slot: Slot) -> Sequence[Result]:
        rows = dict(zip(batch.steps, results, strict=True))
        done = []
        for state in batch.states:
            frames = rows[state]
            if state.job.request.pixel_type == "uint8":
                frames = frames.mul_(255).round_().to(torch.uint8)  # a long clip's floats are not held twice
            done.append(Result(state, state.num_done, to_host(frames.contiguous())))
        for state in batch.states:
            state.is_decoded = True
        return done

    def undo(self, batch: OpenBatch, results: Iterable[Result]) -> None:
        for result in results:
            result.state.is_decoded = False


@dataclass(slots=True)
class Group:
    """Payload of a Batch: consecutive blocks of an open step, and what they gave if the last one was among them."""

    open: OpenBatch
    first: int
    last: int
    results: Sequence[Result] = field(default=(), repr=False)


def outputs(group: Group, kind: str) -> Sequence[StepOutput]:
    """What a computed group tells the states' owners; `kind` is image or video."""
    told = []
    for result in group.results:
        if result.state.is_released:
            continue
        try:
            told.append(_output(result, group.open.stage.name, kind))
        except Exception as error:
            told.append(failed_output(result.state, error))
    return told


def _output(result: Result, stage: str, kind: str) -> StepOutput:
    state = result.state
    if result.frames is None:
        return StepOutput(state, [Progress(state.id, stage, result.num_done, state.job.schedule.num_steps)])
    return StepOutput(state, [_media_event(state, result.frames, kind), finished(state, "done")], is_final=True)


def finished(state: DiffusionState, reason: Any) -> Finished:
    return Finished(state.id, reason, Usage(prompt_tokens=state.num_prompt_tokens, num_steps=state.num_done))


def _media_event(state: DiffusionState, frames: Tensor, kind: str) -> Image | Video:
    num_frames, height, width, _ = frames.shape
    pixels = Pixels(frames.numpy().tobytes(), num_frames, height, width, state.job.request.pixel_type)
    return Image(state.id, pixels) if kind == "image" else Video(state.id, pixels, state.job.request.fps)
