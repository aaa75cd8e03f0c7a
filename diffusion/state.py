"""A picture or clip that is being made: what has been done of its job, and what it holds.

Written by its runner alone; the scheduler reads it as a StateView. A step advances it at launch: it reads latents and
history from one half of its lease and writes the other, so that a step which fails half-way has changed nothing.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hemiola.core.memory import HostCopy, Need
from hemiola.core.memory.lease import Lease
from hemiola.core.service import completion_due_s
from hemiola.core.step import Blocks, Work
from hemiola.core.text_encoder import Encoding

from .conditions import ConditionKey, Conditions
from .job import Job, Steps, Wanted

if TYPE_CHECKING:
    from .open_batch import OpenBatch

LANE = "media"


@dataclass(slots=True, eq=False)
class DiffusionState:
    """Fields:
    job: what there is to do.
    library: the model's conditions, to see which are being made.
    lease: latents and solver history, twice; None while parked or released.
    num_done: denoise steps launched.
    conditions: those held, locked.
    encodings: hidden states that another model was asked for.
    open: the batch whose step is under way.
    parked: latents and history in host memory.
    noise: the starting latents in host memory, until the first denoise step writes them into the lease.
    is_decoded: nothing is left to launch.
    is_released: it is over, by whatever end.
    """

    job: Job
    library: Conditions
    lease: Lease | None
    num_done: int = 0
    conditions: dict[ConditionKey, Lease] = field(default_factory=dict)
    encodings: dict[ConditionKey, Encoding] = field(default_factory=dict)
    open: "OpenBatch | None" = None
    parked: HostCopy | None = None
    noise: Tensor | None = None
    is_decoded: bool = False
    is_released: bool = False

    # What the scheduler sees

    @property
    def id(self) -> str:
        return self.job.request.id

    @property
    def model(self) -> str:
        return self.job.request.model

    @property
    def lane(self) -> str:
        return LANE

    @property
    def phase(self) -> str:
        return self.steps.stage.name

    @property
    def is_ready(self) -> bool:
        return self.waiting_for is None and not self.is_decoded

    @property
    def waiting_for(self) -> str | None:
        if self.open is not None:
            return None
        if self.parked is not None:
            return "resume"
        if any(not self.is_at_hand(wanted.key) for wanted in self.missing):
            return "encoding"
        return None

    @property
    def batch_key(self) -> Hashable:
        return self.open or self.steps.key

    @property
    def cost_key(self) -> Hashable:
        return self.model, self.phase

    @property
    def cut(self) -> Blocks:
        return self.steps.cut(self.next_block)

    @property
    def work(self) -> Work:
        return self.steps.rest[self.next_block]

    @property
    def remaining(self) -> Sequence[tuple[str, Work]]:
        job, now = self.job, self.steps
        left = [(now.stage.name, self.work)] if not self.is_decoded else []
        steps = job.schedule.num_steps - self.num_done - (now is job.denoise)
        if now is not job.decode:
            left.append((job.denoise.stage.name, Work(*(value * steps for value in job.denoise.rest[0]))))
            left.append((job.decode.stage.name, job.decode.rest[0]))
        return left

    @property
    def bytes_needed(self) -> int:
        if self.parked is not None:
            return sum(self.need.general)
        return 0 if self.open is not None else self.steps.carry_bytes

    @property
    def can_park(self) -> bool:
        return self.open is None and self.parked is None and not self.is_decoded

    @property
    def service_class(self) -> str:
        return self.job.request.service_class

    @property
    def tenant(self) -> str:
        return self.job.request.tenant

    @property
    def priority(self) -> int:
        return self.job.request.priority

    @property
    def arrival_s(self) -> float:
        return self.job.request.arrival_s

    @property
    def behind_s(self) -> float:
        return self.job.request.behind_s

    @property
    def due_s(self) -> float:
        return completion_due_s(self.job.request)

    # What its runner sees

    @property
    def is_denoised(self) -> bool:
        return self.num_done == self.job.schedule.num_steps

    @property
    def missing(self) -> Sequence[Wanted]:
        """Conditions that must be held before the next denoise step, and are not."""
        if self.is_denoised or len(self.conditions) == len(self.job.wanted):
            return ()
        return [wanted for wanted in self.job.wanted if wanted.key not in self.conditions]

    @property
    def need(self) -> Need:
        """What it must be able to lease to go on from where it is: latents first, the largest carry last."""
        return self.job.needs[self.is_denoised]

    @property
    def steps(self) -> Steps:
        """The stage that its next block belongs to."""
        if self.open is not None:
            return self.open.steps[self]
        if self.is_denoised:
            return self.job.decode
        missing = self.missing
        return self.job.encode(missing) if missing else self.job.denoise

    @property
    def next_block(self) -> int:
        return self.open.next_block if self.open is not None else 0

    def is_at_hand(self, key: ConditionKey) -> bool:
        """Whether a step could make that condition now: nobody else is at it, and its hidden states are there."""
        encoding = self.encodings.get(key)
        return not self.library.is_made_now(key) and (encoding is None or encoding.is_done)

    def tensors(self, num_done: int) -> Tensor:
        """Latents, then history, as they are after so many steps: float32 [1 + num_history, *latents_shape]."""
        assert self.lease is not None, f"'{self.id}' holds no latents"
        shape = (2, 1 + self.job.num_history, *self.job.latents_shape)
        return self.lease.tensor(shape, torch.float32)[num_done % 2]

    @property
    def held_conditions(self) -> tuple[Tensor, ...]:
        """In the order of the request's prompts."""
        wanted = {w.key: w.shape for w in self.job.wanted}
        return tuple(self.conditions[key].tensor(wanted[key], self.job.condition_dtype) for key in self.job.prompt_keys)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.job.prompt_keys[0].token_ids)
