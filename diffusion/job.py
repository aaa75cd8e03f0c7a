"""What is known of a request from the moment it is admitted: its steps, their blocks and work, and the bytes they take.

Nothing here changes while the request runs, and nothing is a tensor but the solver's schedule.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import torch

from hemiola.core.memory import Need
from hemiola.core.request import MediaRequest
from hemiola.core.step import Blocks, Work, total_work

from .carry_store import slot_sizes
from .conditions import ConditionKey
from .families import Family
from .solvers import Schedule
from .stage import Stage


@dataclass(frozen=True)
class Steps:
    """A stage as one request sees it.

    Fields:
        stage: encode, denoise or decode.
        shape: what the stage describes the row by; of encode, one for each prompt.
        key: rows of equal keys may share a batch.
        works: of each block.
        carried: bytes per tensor of the carry.
    """

    stage: Stage[Any]
    key: Hashable
    shape: Any
    works: tuple[Work, ...]
    carried: Mapping[str, int]

    def cut(self, first: int) -> Blocks:
        """All blocks that are left from there on."""
        return Blocks(first, len(self.works) - 1, self.works[first:])

    @cached_property
    def rest(self) -> tuple[Work, ...]:
        """By block: the work of all that are left from there on, counted as one row."""
        sums = list(accumulate(reversed(self.works), Work.plus))
        return tuple(work._replace(rows=1) for work in reversed(sums))

    @cached_property
    def carry_bytes(self) -> int:
        return sum(slot_sizes([self.carried]).values())


def steps_of(stage: Stage[Any], shape: Any) -> Steps:
    """The steps of a row of that shape."""
    works = tuple(block.work for block in stage.blocks(shape))
    return Steps(stage, (stage.name, stage.batch_key(shape)), shape, works, stage.carried(shape))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A condition that the request needs: its key, its shape, its bytes, and how to make it."""

    key: ConditionKey
    shape: tuple[int, int]
    nbytes: int
    steps: Steps


@dataclass(frozen=True)
class Job:
    """Fields: the request; its schedule; of the state, the latents' shape and how many more like them the solver keeps;
    of each prompt (a negative one comes second) its condition and padding; the conditions without repeats; the steps.
    """

    request: MediaRequest
    schedule: Schedule
    latents_shape: tuple[int, int, int, int]
    num_history: int
    prompt_keys: tuple[ConditionKey, ...]
    num_padding: tuple[int, ...]
    wanted: tuple[Wanted, ...]
    condition_dtype: torch.dtype
    denoise: Steps
    decode: Steps
    _encodes: dict[tuple[ConditionKey, ...], Steps] = field(default_factory=dict, repr=False)

    @property
    def state_bytes(self) -> int:
        """Latents and solver history, twice: a step reads one set and writes the other."""
        return 2 * (1 + self.num_history) * prod(self.latents_shape) * torch.float32.itemsize

    def encode(self, missing: Sequence[Wanted]) -> Steps:
        """One encode step for all of these."""
        keys = tuple(wanted.key for wanted in missing)
        if keys not in self._encodes:
            first = missing[0].steps
            works = tuple(
                total_work(parts)._replace(rows=1, blocks=1)
                for parts in zip(*(wanted.steps.works for wanted in missing), strict=True)
            )
            shapes = tuple(wanted.steps.shape for wanted in missing)
            carried = slot_sizes(wanted.steps.carried for wanted in missing)
            self._encodes[keys] = Steps(first.stage, first.key, shapes, works, carried)
        return self._encodes[keys]

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the request must be able to lease at once, alone: while it is denoised (or encoded), and decoded."""
        conditions = tuple(wanted.nbytes for wanted in self.wanted)
        carry = max(self.denoise.carry_bytes, self.encode(self.wanted).carry_bytes)
        return (
            Need(general=(self.state_bytes, *conditions, carry)),
            Need(general=(self.state_bytes, self.decode.carry_bytes)),
        )


def make_job(
    request: MediaRequest, family: Family, model: str, steps_of: Callable[[Stage[Any], Any], Steps] = steps_of
) -> Job:
    """The job of a request that was found valid. `steps_of` may be a cached one: shapes come again and again."""
    prompts = family.prompts(request)
    wanted = []
    for token_ids in dict.fromkeys(prompts):
        shape = family.condition_shape(len(token_ids))
        nbytes = prod(shape) * family.condition_dtype.itemsize
        key = ConditionKey.of(model, token_ids)
        wanted.append(Wanted(key, shape, nbytes, steps_of(family.encode, len(token_ids))))
    latents_shape = family.latents_shape(request)
    return Job(
        request,
        family.schedule(request),
        latents_shape,
        family.solver.num_history,
        tuple(ConditionKey.of(model, token_ids) for token_ids in prompts),
        family.num_padding(request),
        tuple(wanted),
        family.condition_dtype,
        steps_of(family.denoise, family.denoise_shape(request)),
        steps_of(family.decode, latents_shape),
    )
