"""An encoding that is running, as the scheduler sees it, and as those who wait for it hold it.

Shape suffixes: T tokens of all prompts.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.memory import Lease
from ..core.request import MediaRequest, Terms
from ..core.service import completion_due_s, token_due_s
from ..core.step import Blocks, Quantum, Whole, Work, total_work

Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Encoder:
    """What all encodings of a model have in common. `token_bytes` is one hidden state of one token."""

    model: str
    lane: str
    token_bytes: int


class SharedEncoding:
    """One holder's interest in a result. See `core.text_encoder.Encoding`."""

    __slots__ = ("_is_released", "_job", "_lease", "_shape", "error")

    def __init__(self, shape: tuple[torch.Size, torch.dtype], lease: Lease | None, job: "EncodeState | None") -> None:
        self._shape = shape
        self._lease = lease
        self._job = job
        self._is_released = False
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self._lease is not None or self.error is not None

    @property
    def hidden_states(self) -> Tensor:
        assert self._lease is not None, "The encoding is not done."
        return self._lease.tensor(*self._shape)

    def release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        if self._job is not None:
            self._job.holders.remove(self)
        if self._lease is not None:
            self._lease.unlock()

    def resolve(self, lease: Lease | None, error: Exception | None) -> None:
        """The job is over: with a lease that is locked for this holder, or with an error."""
        self._job, self._lease, self.error = None, lease, error


class EncodeState:
    """A job, as the scheduler sees it (a chore). See `core.step.StateView`.

    Fields:
        terms: of the most urgent parent: the step inherits from it.
        token_ids, until: what to encode, up to which hidden state.
        holders: who waits. When nobody does, the job's next step ends it without computing.
        open: the batch it runs in, once it has started.
        error: what its last step raised.
    """

    __slots__ = (
        "encoder",
        "error",
        "holders",
        "id",
        "is_over",
        "key",
        "num_blocks",
        "open",
        "terms",
        "token_ids",
        "until",
    )

    def __init__(
        self,
        encoder: Encoder,
        key: Key,
        id: str,
        *,
        token_ids: tuple[int, ...],
        until: int,
        num_blocks: int,
        terms: Terms,
    ) -> None:
        self.encoder = encoder
        self.key = key
        self.id = id
        self.token_ids = token_ids
        self.until = until
        self.num_blocks = num_blocks
        self.terms = terms
        self.holders: list[SharedEncoding] = []
        self.open: OpenEncoding | None = None
        self.error: Exception | None = None
        self.is_over = False

    @property
    def is_wanted(self) -> bool:
        return bool(self.holders)

    @property
    def next_block(self) -> int:
        return 0 if self.open is None else self.open.next_block

    @property
    def model(self) -> str:
        return self.encoder.model

    @property
    def lane(self) -> str:
        return self.encoder.lane

    @property
    def phase(self) -> str:
        return "encode"

    @property
    def is_ready(self) -> bool:
        return not self.is_over and self.next_block < self.num_blocks

    @property
    def waiting_for(self) -> str | None:
        return None if self.is_ready else "its last block"

    @property
    def batch_key(self) -> Hashable:
        if self.open is not None:
            return self.model, "encode", id(self.open)
        return self.model, "encode", self.until if self.is_wanted else "cancelled"

    @property
    def cost_key(self) -> Hashable:
        return self.model, "encode"

    @property
    def cut(self) -> Quantum:
        if self.open is None and not self.is_wanted:
            return Whole()
        num_left = self.num_blocks - self.next_block
        return Blocks(self.next_block, self.num_blocks - 1, (self.block_work,) * num_left)

    @property
    def block_work(self) -> Work:
        """One block of the prompt alone."""
        if not self.is_wanted:
            return Work()
        num_tokens = len(self.token_ids)
        return Work(1, num_tokens, num_tokens, num_tokens * (num_tokens + 1) // 2, blocks=1)

    @property
    def work(self) -> Work:
        return total_work([self.block_work] * (self.num_blocks - self.next_block))

    @property
    def remaining(self) -> Sequence[tuple[str, Work]]:
        return (("encode", self.work),)

    @property
    def bytes_needed(self) -> int:
        return 0 if self.open else 2 * len(self.token_ids) * self.encoder.token_bytes

    @property
    def can_park(self) -> bool:
        return False

    @property
    def service_class(self) -> str:
        return self.terms.service_class

    @property
    def tenant(self) -> str:
        return self.terms.tenant

    @property
    def priority(self) -> int:
        return self.terms.priority

    @property
    def arrival_s(self) -> float:
        return self.terms.arrival_s

    @property
    def behind_s(self) -> float:
        return self.terms.behind_s

    @property
    def due_s(self) -> float:
        return terms_due_s(self.terms)


@dataclass(slots=True, eq=False)
class OpenEncoding:
    """Jobs that run together, from their first block to their last.

    Fields:
        states: one row each, dead ones too.
        carry: lease of the hidden states between two groups of blocks.
        results: of each state, made when the batch was opened: leases reach to the end of the step.
        next_block: the first that was not launched.
    """

    states: list[EncodeState]
    carry: Lease
    results: list[Lease]
    token_ids_T: Tensor
    positions_T: Tensor
    lens: list[int]
    next_block: int = 0

    @property
    def is_wanted(self) -> bool:
        return any(state.is_wanted for state in self.states)


def terms_due_s(terms: Terms) -> float:
    return completion_due_s(terms) if isinstance(terms, MediaRequest) else token_due_s(terms, 0, 0.0)


def urgency(terms: Terms) -> tuple[int, float]:
    return terms.priority, terms_due_s(terms)
