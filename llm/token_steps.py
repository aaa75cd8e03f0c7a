"""Steps over tokens: plans, computes and delivers prefill chunks and decodes of one model's requests.

The runner decides whose step it is; this file knows how one is made. A state advances in `launch`, after all that can
fail; `collect` only delivers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.events import Event, Finished, Token, Usage
from ..core.graphs import GraphPool
from ..core.pending import Stopwatch
from ..core.staging import to_host
from ..core.step import Batch, Pending, Shortfall, Slot, StepOutput, Tokens, Work, failed_output
from ..kernels.attention import PagedAttention
from ..kernels.kv_store import KvStore
from ..kernels.sampling import Sampler
from .attend import PagedAttend
from .choosing import Asked, Chosen, choose, log_prob_lists
from .compose import Chunk, Decodes, compose
from .decode_graphs import DecodeGraphs
from .kv_cache import KvCache
from .models.base import LanguageModel
from .rows import RowTable
from .state import LanguageState, Served, chunk_work

# Pages are taken for so many tokens more, as long as there are any: taking them one by one costs more than it saves.
_TOKENS_AHEAD = 12

# Forced tokens whose logits are computed in one step: each takes the vocabulary twice over in float32.
_MOST_TOLD = 1024

_by_length = attrgetter("num_computed")


@dataclass(slots=True)
class TokenStep:
    """A planned or launched step.

    Fields:
        decodes, chunks: its rows.
        grown: who took pages for it, and how many pages they had before.
        is_tight: somebody could not have pages ahead of need; nobody asks for them any more.
        sampled: states that get a token, in order of the chosen ones.
        chosen: their tokens, once launched.
        slot: where it was launched.
    """

    decodes: list[LanguageState]
    chunks: list[Chunk]
    grown: list[tuple[LanguageState, int]]
    is_tight: bool = False
    sampled: list[LanguageState] = field(default_factory=list)
    chosen: Chosen | None = None
    slot: Slot | None = None


class _Sampled(NamedTuple):
    """Tokens of a step, and the request rows [R] that they belong to, both on the device."""

    chosen: Chosen
    rows_R: Tensor


class TokenSteps:
    """Makes steps of one model over its pages.

    Args:
        max_tokens: of one step.
        states: all running requests by id, kept by the runner.
        graph_pool: where graphs of steps that only decode are captured, if the model can be.
    """

    def __init__(
        self,
        model: LanguageModel,
        kv: KvCache,
        served: Served,
        *,
        attention: PagedAttention,
        store: type[KvStore],
        sampler: type[Sampler],
        device: torch.device,
        max_tokens: int,
        states: Mapping[str, LanguageState],
        graph_pool: GraphPool | None = None,
    ) -> None:
        self._states = states
        self._model = model
        self._kv = kv
        self._served = served
        self._attention = attention
        self._store = store
        self._sampler = sampler
        self._device = device
        self._max_tokens = max_tokens
        self._layer_pages: list[Tensor] = list(kv.view.unbind(1))
        self.table = RowTable(device, kv.arena.clock)
        self.graphs = self._make_graphs(graph_pool) if graph_pool is not None and self._is_capturable() else None

    def _is_capturable(self) -> bool:
        """Whether decodes can be captured: by the model, and by the attention."""
        return self._model.is_capturable and self._attention.fixed_plan(1, 1) is not None

    def _make_graphs(self, pool: GraphPool) -> DecodeGraphs:
        model = self._model
        return DecodeGraphs(
            forward=lambda ids_B, positions_B, attend: model.forward(ids_B, positions_B, attend, None),
            greedy=self._sampler.greedy,
            attend=self._attend,
            attention=self._attention,
            kv=self._kv,
            table=self.table,
            pool=pool,
            max_len=model.shape.max_len,
            vocab_size=model.shape.vocab_size,
        )

    def _attend(self, plan: Any, page_idx_T: Tensor, offset_T: Tensor) -> PagedAttend:
        return PagedAttend(self._store, self._attention, self._layer_pages, plan, page_idx_T, offset_T)

    # Planning

    def plan(self, states: Sequence[LanguageState], quantum: Tokens) -> Batch | Shortfall:
        """As many states, in their order, as tokens and pages allow; a Shortfall when the first does not fit."""
        budget = min(quantum.max, self._max_tokens)
        step = TokenStep([], [], [])
        try:
            return self._fill(step, states, budget, quantum)
        except Exception:
            self.cancel(step)
            raise

    def _fill(
        self, step: TokenStep, states: Sequence[LanguageState], budget: int, quantum: Tokens
    ) -> Batch | Shortfall:
        planned: list[LanguageState] = []
        page_len, context_tokens, told_budget = self._served.page_len, 0, _MOST_TOLD
        prefill = Work()
        shortfall: Shortfall | None = None
        for state in states:
            if budget <= 0:
                break
            if state.memory.waits is not None and not self.begin(state, may_wait=bool(planned)):
                continue
            start = state.num_computed
            num_new = min(state.target_len - start, budget, max(state.prompt_len - start, 0) + told_budget)
            if start + num_new > len(state.memory.pages) * page_len:
                shortfall = self._grow(state, start + num_new, step)
                if shortfall is not None:
                    if not planned:
                        return shortfall
                    continue
            planned.append(state)
            budget -= num_new
            if start + 1 == state.target_len and state.memory.tail is None:
                step.decodes.append(state)
                context_tokens += start + 1
            else:
                num_told = _num_told(state, start, num_new)
                told_budget = max(told_budget - num_told, 1)
                step.chunks.append(Chunk(state, num_new, num_told))
                prefill = prefill.plus(chunk_work(start, num_new))
        num_decodes = len(step.decodes)
        work = prefill.plus(Work(num_decodes, num_decodes, context_tokens, context_tokens))
        key = self._served.mixed_key if step.chunks else self._served.decode_key
        return Batch(planned, work, key, quantum, step)

    def begin(self, state: LanguageState, *, may_wait: bool = True) -> bool:
        """Takes up what others have computed of the prompt and promises the rest; False if it waits for somebody.

        It waits only for those who are at least as urgent: never for a promise that the scheduler keeps back.
        """
        memory = state.memory
        state.num_computed = state.num_cached = self._kv.look_up(memory, state.request.token_ids)
        if may_wait and memory.waits is not None and memory.waits.waits_for is not None:
            other = self._states.get(memory.waits.waits_for.owner)
            if other is not None and (other.priority, other.due_s) <= (state.priority, state.due_s):
                return False
        self._kv.promise(memory, state.request.token_ids)
        return True

    def _grow(self, state: LanguageState, num_tokens: int, step: TokenStep) -> Shortfall | None:
        """Takes pages for so many tokens, and for some decodes to come if they are there."""
        kv, memory = self._kv, state.memory
        step.grown.append((state, len(memory.pages)))
        shortfall: Shortfall | None = None
        if not step.is_tight:
            shortfall = kv.grow(memory, kv.pages_for(min(num_tokens + _TOKENS_AHEAD, state.max_len)))
            step.is_tight = shortfall is not None
        if step.is_tight:
            shortfall = kv.grow(memory, kv.pages_for(num_tokens))
        if shortfall is not None:
            step.grown.pop()
        return shortfall

    def cancel(self, step: TokenStep) -> None:
        for state, before in step.grown:
            self._kv.shrink(state.memory, before)
        step.grown.clear()

    # Launching

    def launch(self, step: TokenStep, slot: Slot) -> Pending:
        stopwatch = Stopwatch(self._device)
        with torch.inference_mode():
            self._prepare_pages(step)
            step.decodes.sort(key=_by_length)
            counters = [state.num_sampled for state in step.decodes]
            step.sampled = list(step.decodes)
            for state, num_new, num_told in step.chunks:
                first = state.num_computed + num_new - num_told - state.prompt_len + 1
                counters += range(first, first + num_told)
                step.sampled += [state] * num_told
            asked = {
                row: Asked(state.request.sampling, counters[row])
                for row, state in enumerate(step.sampled)
                if not state.is_plain
            }
            sampled: _Sampled | None
            sampled = self._replay(step, asked)
            if sampled is None:
                sampled = self._compute(step, asked)
            step.chosen = None if sampled is None else _to_host(sampled.chosen)
            step.slot = slot
            self._advance(step, slot.now_s)
            if sampled is not None:  # the last that happens: whoever is launched again begins from the token before
                self.table.newest.index_copy_(0, sampled.rows_R, sampled.chosen.tokens_R)
        return stopwatch.stop()

    def _compute(self, step: TokenStep, asked: Mapping[int, Asked]) -> "_Sampled | None":
        """Any step, as it comes."""
        inputs = compose(step.decodes, step.chunks, self.table, self._served.page_len, self._device)
        attend = self._attend(self._attention.plan(inputs.rows), inputs.page_idx_T, inputs.offset_T)
        logits_RV = self._model.forward(inputs.token_ids_T, inputs.positions_T, attend, inputs.sampled_R)
        if not step.sampled:
            return None
        return _Sampled(choose(self._sampler, logits_RV, asked), inputs.sampled_rows_R)

    def _replay(self, step: TokenStep, asked: Mapping[int, Asked]) -> "_Sampled | None":
        """A step of decodes alone, by a graph that chooses the likeliest tokens; others are chosen behind it.

        None where there is no graph for it.
        """
        if self.graphs is None or step.chunks:
            return None
        decodes = Decodes.of(step.decodes)
        if not self.graphs.serves(decodes):
            return None
        logits_RV, tokens_R, rows_R = self.graphs.run(decodes)
        chosen = choose(self._sampler, logits_RV, asked) if asked else Chosen(tokens_R, None)
        return _Sampled(chosen, rows_R)

    def _prepare_pages(self, step: TokenStep) -> None:
        """Rows' page tables, clean new pages, and copies of shared tails."""
        new: list[int] = []
        for state, before in step.grown:
            memory = state.memory
            if state.row < 0:
                state.row = self.table.take()
                self.table.set_pages(state.row, 0, memory.pages)
            else:
                self.table.set_pages(state.row, before, memory.pages[before:])
            new += memory.pages[before:]
        if new and self._attention.needs_clean_pages:
            self._kv.clear(new)
        for state, _, _ in step.chunks:
            if state.memory.tail is not None:
                self._kv.copy_tail(state.memory)

    def _advance(self, step: TokenStep, now_s: float) -> None:
        """Tells the prefix cache first, for that may fail: then nobody has advanced."""
        for state in step.decodes:
            promise = state.memory.promise
            if promise is not None and promise.is_open:
                self._kv.launched(state.memory, state.num_computed + 1)
        for state, num_new, _ in step.chunks:
            self._kv.launched(state.memory, state.num_computed + num_new)
        for state in step.decodes:
            state.num_computed += 1
            state.target_len += 1
            state.num_steps += 1
            state.last_token_s = now_s
        for state, num_new, _ in step.chunks:
            state.memory.tail = None
            state.num_computed += num_new
            state.num_steps += 1
            if state.num_computed == state.target_len:
                state.target_len += 1
                state.last_token_s = now_s

    # Collecting

    def collect(self, step: TokenStep) -> list[StepOutput]:
        """Tokens, and the ends of those that have one. Rows of states that have ended are passed over."""
        if step.chosen is None:
            return []
        log_probs = step.chosen.log_probs
        found = log_prob_lists(log_probs) if log_probs is not None else {}
        outputs = []
        for row, token_id in enumerate(step.chosen.tokens_R.tolist()):
            state = step.sampled[row]
            if state.row < 0:
                continue
            try:
                outputs.append(_output(state, token_id, found.get(row, ())))
            except Exception as error:
                outputs.append(failed_output(state, error))
        return outputs


def _output(state: LanguageState, token_id: int, log_probs: tuple[Any, ...]) -> StepOutput:
    """The state's next token, and its end if it has one."""
    request, token_ids = state.request, state.token_ids
    state.num_generated += 1
    if state.prompt_len + state.num_generated > len(token_ids):
        token_ids.append(token_id)
    if token_id in request.sampling.stop_token_ids:
        return StepOutput(state, (finished(state, "stop", token_id),), True)
    token = Token(request.id, token_id, *log_probs)
    if state.prompt_len + state.num_generated == state.max_len:
        return StepOutput(state, (token, finished(state, "length")), True)
    return StepOutput(state, (token,))


def _num_told(state: LanguageState, start: int, num_new: int) -> int:
    """Behind how many of the tokens [start, start + num_new) the answer has one: those from the prompt's last on."""
    return max(start + num_new - max(start, state.prompt_len - 1), 0)


def finished(state: LanguageState, reason: Literal["stop", "length"], stop_reason: int | None = None) -> Event:
    """The good end. A token that ended the answer counts as generated, although it is not shown."""
    usage = Usage(state.prompt_len, state.num_cached, state.num_generated, state.num_steps)
    return Finished(state.id, reason, usage, stop_reason)


def _to_host(chosen: Chosen) -> Chosen:
    """Copies behind the step; read after it is done."""
    log_probs = chosen.log_probs
    if log_probs is not None:
        log_probs = log_probs._replace(
            chosen_N=to_host(log_probs.chosen_N),
            top_NK=to_host(log_probs.top_NK),
            top_ids_NK=to_host(log_probs.top_ids_NK),
        )
    tokens_R = chosen.tokens_R
    return Chosen(tokens_R.clone() if tokens_R.device.type == "cpu" else to_host(tokens_R), log_probs)
