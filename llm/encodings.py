"""Hidden states for others: what `TextEncoder.encode` promises, and the steps that compute it.

A job is one prompt up to one layer, whoever asks for it. Jobs that start together form an open batch: one flattened
batch [T], attended to densely within each prompt, run block by block over a leased carry. Nothing touches KV pages or
the prefix cache: a hit there would lack hidden states, and stopping before the last layer would poison it.
Shape suffixes: T tokens of all prompts, C hidden size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import torch

from ..core.errors import ContextTooLong, HemiolaError, InvalidRequest, RequestAborted
from ..core.memory import Arena, Lease
from ..core.pending import Stopwatch
from ..core.request import Terms
from ..core.staging import ints_to_device
from ..core.step import Batch, Blocks, Pending, Quantum, Shortfall, Slot, StepOutput, Work, blocks_work, total_work
from ..core.text_encoder import Encoding
from ..kernels.attention import RaggedAttention
from .attend import RaggedAttend
from .encode_state import Encoder, EncodeState, Key, OpenEncoding, SharedEncoding, urgency
from .models.base import LanguageModel, encode_blocks, hidden_state_index


@dataclass(slots=True)
class EncodeStep:
    """Blocks `first` to `last` of an open batch; without one it only ends jobs that nobody waits for.

    Fields:
        ended: jobs whose last block was launched, or that are not wanted any more.
        is_computed: False when nobody wanted the batch at launch, so that its results are not there.
    """

    open: OpenEncoding | None
    first: int = 0
    last: int = 0
    ended: list[EncodeState] = field(default_factory=list)
    is_computed: bool = False


class Encodings:
    """All encodings of one language model.

    Args:
        max_tokens: of one open batch, unless one prompt alone has more.
    """

    def __init__(
        self,
        name: str,
        lane: str,
        model: LanguageModel,
        arena: Arena,
        *,
        attention: RaggedAttention,
        device: torch.device,
        max_tokens: int,
    ) -> None:
        self._encoder = Encoder(name, lane, model.shape.hidden_size * model.dtype.itemsize)
        self._model = model
        self._numbers = count()
        self._arena = arena
        self._attention = attention
        self._device = device
        self._max_tokens = max_tokens
        self._jobs: dict[Key, EncodeState] = {}
        self._new: list[EncodeState] = []

    # Asking

    def encode(self, token_ids: Sequence[int], hidden_state: int, parent: Terms) -> Encoding:
        """See `core.text_encoder.TextEncoder`. A prompt that cannot be encoded gives an encoding with an error."""
        ids = tuple(token_ids)
        shape = self._model.shape
        until = hidden_state_index(shape, hidden_state)
        key: Key = ("encoding", self._encoder.model, until, ids)
        size = (torch.Size((len(ids), shape.hidden_size)), self._model.dtype)
        job = self._jobs.get(key)
        if job is None:
            found = self._arena.find(key)
            holder = SharedEncoding(size, found, None)
            holder.error = self._objection(ids)
            if found is not None or holder.error is not None:
                return holder
            job = self._jobs[key] = EncodeState(
                self._encoder,
                key,
                f"encode:{next(self._numbers)}",
                token_ids=ids,
                until=until,
                num_blocks=encode_blocks(self._model, until),
                terms=parent,
            )
            self._new.append(job)
        elif urgency(parent) < urgency(job.terms):
            job.terms = parent
        holder = SharedEncoding(size, None, job)
        job.holders.append(holder)
        return holder

    def _objection(self, ids: tuple[int, ...]) -> Exception | None:
        shape = self._model.shape
        if not ids:
            return InvalidRequest("prompt", "Invalid 'prompt': no tokens to encode. At least one is needed.")
        if len(ids) > shape.max_len:
            return ContextTooLong(
                "prompt", f"'{self._encoder.model}' encodes {shape.max_len} tokens; the prompt has {len(ids)}."
            )
        if not 0 <= min(ids) <= max(ids) < shape.vocab_size:
            return InvalidRequest("prompt", f"Token ids of '{self._encoder.model}' lie in [0, {shape.vocab_size}).")
        return None

    def chores(self) -> Iterable[EncodeState]:
        """Jobs that the scheduler does not know yet."""
        new, self._new = self._new, []
        return new

    # Steps

    def plan(self, states: Sequence[EncodeState], quantum: Quantum) -> Batch | Shortfall:
        if not isinstance(quantum, Blocks):
            return Batch(states, Work(), states[0].cost_key, quantum, EncodeStep(None, ended=list(states)))
        opened = states[0].open or self._open([state for state in states if state.is_wanted])
        if isinstance(opened, Shortfall):
            return opened
        end = opened.states[0].num_blocks - 1
        step = EncodeStep(opened, opened.next_block, min(quantum.last, end) if opened.is_wanted else end)
        work = blocks_work([[state.block_work] * (step.last - step.first + 1) for state in opened.states])
        return Batch(list(opened.states), work, states[0].cost_key, Blocks(step.first, step.last), step)

    def _open(self, states: Sequence[EncodeState]) -> OpenEncoding | Shortfall:
        """Leases the carry and the results of as many states as the token limit allows."""
        chosen: list[EncodeState] = []
        num_tokens = 0
        for state in states:
            if chosen and num_tokens + len(state.token_ids) > self._max_tokens:
                break
            chosen.append(state)
            num_tokens += len(state.token_ids)
        carry = self._arena.lease(num_tokens * self._encoder.token_bytes, chosen[0].id)
        if isinstance(carry, Shortfall):
            return carry
        results: list[Lease] = []
        for state in chosen:
            saves = total_work([state.block_work] * state.num_blocks)
            nbytes = len(state.token_ids) * self._encoder.token_bytes
            lease = self._arena.share(state.key, nbytes, saves, state.cost_key)
            if isinstance(lease, Shortfall):
                _drop([carry, *results])
                return lease
            results.append(lease)
        lens = [len(state.token_ids) for state in chosen]
        ids = ints_to_device([i for state in chosen for i in state.token_ids], self._device)
        positions = ints_to_device([i for n in lens for i in range(n)], self._device)
        opened = OpenEncoding(chosen, carry, results, ids, positions, lens)
        for state in chosen:
            state.open = opened
        return opened

    def launch(self, step: EncodeStep, slot: Slot) -> Pending:
        stopwatch = Stopwatch(self._device)
        opened = step.open
        if opened is None:
            return stopwatch.stop()
        step.is_computed = opened.is_wanted
        try:
            if step.is_computed:
                with torch.inference_mode():
                    self._run(opened, step, slot)
        except Exception as error:
            for state in opened.states:
                state.error = error
            raise
        opened.next_block = step.last + 1
        if opened.next_block == opened.states[0].num_blocks:
            step.ended = list(opened.states)
        return stopwatch.stop()

    def _run(self, opened: OpenEncoding, step: EncodeStep, slot: Slot) -> None:
        until = opened.states[0].until
        model = self._model
        carry_TC = opened.carry.tensor((sum(opened.lens), model.shape.hidden_size), model.dtype)
        attend = RaggedAttend(self._attention, opened.lens)
        x_TC = carry_TC if step.first else None
        for block in range(step.first, step.last + 1):
            x_TC = model.encode_block(block, x_TC, opened.token_ids_T, opened.positions_T, attend, until)
        assert x_TC is not None, "A step has at least one block."
        if step.last + 1 < opened.states[0].num_blocks:
            if x_TC is not carry_TC:
                carry_TC.copy_(x_TC)
            opened.carry.written(slot)
            return
        for lease, part_TC in zip(opened.results, x_TC.split(opened.lens), strict=True):
            lease.tensor(part_TC.shape, part_TC.dtype).copy_(part_TC)
            lease.written(slot)

    def collect(self, step: EncodeStep) -> list[StepOutput]:
        """Holders of ended jobs get their results. Unwanted jobs that were asked for again meanwhile start anew."""
        if step.ended and step.open is not None and step.is_computed:
            self._deliver(step.open)
        elif step.ended:
            if step.open is not None:
                self._abandon(step.open)
            step.ended = [state for state in step.ended if not state.is_wanted]
            for state in step.ended:
                self._end(state, None, None)
        return [StepOutput(state, (), True) for state in step.ended]

    def cancel(self, step: EncodeStep) -> None:
        """The jobs are as they were before their first block."""
        if step.open is not None:
            self._abandon(step.open)

    def release(self, state: EncodeState, error: HemiolaError | None = None) -> None:
        """The job is over, whatever became of it; holders that still wait get the error, or that of its last step."""
        if state.is_over:
            return
        if state.open is not None:  # ended from outside: its row stays dead in the batch
            opened, state.open = state.open, None
            if all(other.open is None for other in opened.states):
                self._abandon(opened)
        self._end(state, None, error or state.error or RequestAborted("The encoding was aborted."))

    def _deliver(self, opened: OpenEncoding) -> None:
        for state, lease in zip(opened.states, opened.results, strict=True):
            state.open = None
            self._end(state, lease, None)
            lease.unlock()
        opened.carry.release()

    def _abandon(self, opened: OpenEncoding) -> None:
        for state in opened.states:
            if state.open is opened:
                state.open = None
        _drop([opened.carry, *opened.results])

    def _end(self, state: EncodeState, lease: Lease | None, error: Exception | None) -> None:
        if state.is_over:
            return
        state.is_over = True
        del self._jobs[state.key]
        for holder in state.holders:
            if lease is not None:
                lease.lock()
            holder.resolve(lease, error)
        state.holders.clear()


def _drop(leases: Sequence[Lease]) -> None:
    """Releases a carry and results that will not come; the latter are locked once by the batch."""
    carry, *results = leases
    carry.release()
    for lease in results:
        lease.release()
        lease.unlock()
