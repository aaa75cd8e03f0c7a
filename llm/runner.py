"""Executes the steps of one language model. Implements `core.step.Runner` for TextRequests, and `TextEncoder`.

Prefill chunks and decodes of all requests share a forward over pages of the arena (token_steps.py); encodings for
others are steps of their own (encodings.py). This file is about requests: who comes in, parks, returns and goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from ..core.config import LoadFormat
from ..core.errors import CannotFit, ContextTooLong, HemiolaError, InvalidRequest
from ..core.events import Event
from ..core.graphs import GraphPool
from ..core.memory import Arena
from ..core.pending import Stopwatch
from ..core.request import Request, Terms, TextRequest
from ..core.step import Batch, Pending, Quantum, Refused, Shortfall, Slot, StepOutput, Tokens
from ..core.text_encoder import Encoding
from ..core.warm_up import WarmUp
from ..kernels.attention import PAGED_ATTENTION, RAGGED_ATTENTION
from ..kernels.kv_store import KV_STORE
from ..kernels.registry import Target
from ..kernels.sampling import SAMPLER
from .encode_state import EncodeState
from .encodings import Encodings
from .kv_cache import KvCache, KvMemory
from .loading import has_language_head, load_model
from .models.base import LanguageModel
from .state import LanguageState, Served
from .token_steps import TokenSteps, finished
from .warming import warm_ups

LANE = "language"
PAGE_LEN = {"cpu": 4, "cuda": 16}

State = LanguageState | EncodeState


class LanguageRunner:
    """One served language model, or one that only encodes for others.

    Args:
        name: what it is served as.
        model: its folder, or a config of the transformers library (random weights then).
        arena: where pages, carries and encodings are leased.
        dtype, device, load_format: of the weights ("dummy": random ones, from the config alone).
        max_batch_tokens: tokens of one forward.
        backends: choices by operation name that override "auto" (see `kernels`, and `loading` for "model").
        prefix_cache: whether pages are kept for later requests that begin alike.
        page_len: tokens per page.
        graph_pool: where graphs of steps that only decode are captured; None: none are.
        encode_only: no text is generated, and no pages are set up; by default so for models without a language head.

    Fields:
        attention_target: what attention kernels have to run on, and for which layers.

    Raises:
        CorruptWeights, UnsupportedModel, CannotFit: see `loading.load_model` and `Arena.add_page_class`.
    """

    lane = LANE

    def __init__(
        self,
        name: str,
        model: str | Path | Any,
        arena: Arena,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        max_batch_tokens: int = 512,
        backends: Mapping[str, str] | None = None,
        load_format: LoadFormat = "auto",
        prefix_cache: bool = True,
        page_len: int | None = None,
        encode_only: bool | None = None,
        graph_pool: GraphPool | None = None,
    ) -> None:
        self.model = name
        self._device = torch.device(device)
        self._states: dict[str, LanguageState] = {}
        self._prefilling: dict[str, LanguageState] = {}
        source = Path(model) if isinstance(model, str) else model
        generates = has_language_head(source) if encode_only is None else not encode_only
        self._model = load_model(
            source, dtype=dtype, device=self._device, load_format=load_format, backends=backends, has_head=generates
        )
        self.shape = self._model.shape
        self.hidden_size = self.shape.hidden_size
        choices, target = backends or {}, Target.of(self._device, dtype)
        self.attention_target = replace(target, head_dim=self.shape.head_dim, needs=self.shape.attention_needs)
        ragged = RAGGED_ATTENTION.resolve(self.attention_target, choices.get("ragged_attention", "auto")).backend()
        self._encodings = Encodings(
            name, LANE, self._model, arena, attention=ragged, device=self._device, max_tokens=max_batch_tokens
        )
        self._kv: KvCache | None = None
        self._steps: TokenSteps | None = None
        if generates:
            length = page_len or PAGE_LEN[self._device.type]
            self._build_steps(arena, self._model, target, choices, length, max_batch_tokens, prefix_cache, graph_pool)

    def _build_steps(
        self,
        arena: Arena,
        model: LanguageModel,
        target: Target,
        choices: Mapping[str, str],
        page_len: int,
        max_batch_tokens: int,
        has_prefixes: bool,
        graph_pool: GraphPool | None,
    ) -> None:
        name, decode_key, mixed_key = self.model, (self.model, "decode"), (self.model, "mixed")
        self._kv = KvCache(
            name,
            arena,
            model.shape,
            dtype=model.dtype,
            page_len=page_len,
            has_prefixes=has_prefixes,
            cost_key=mixed_key,
        )
        self._kv.on_moved(self._moved)
        self._served = Served(name, LANE, page_len, self._kv.page_bytes, (name, "tokens"), decode_key, mixed_key)
        paged = PAGED_ATTENTION.resolve(self.attention_target, choices.get("paged_attention", "auto"))
        self._steps = TokenSteps(
            model,
            self._kv,
            self._served,
            attention=paged.backend(self._kv.view),
            store=KV_STORE.resolve(target, choices.get("kv_store", "auto")).backend,
            sampler=SAMPLER.resolve(target, choices.get("sampling", "auto")).backend,
            device=self._device,
            max_tokens=max_batch_tokens,
            states=self._states,
            graph_pool=graph_pool,
        )

    def warm_ups(self) -> Iterable[WarmUp]:
        """See `core.warm_up.HasWarmUps`; on a CPU there is nothing to build."""
        return () if self._device.type == "cpu" else warm_ups(self)

    @property
    def generates(self) -> bool:
        """Whether it answers requests, and so has a `kv_cache`; otherwise it only encodes."""
        return self._kv is not None

    @property
    def kv_cache(self) -> KvCache:
        """Pages and prefixes, for statistics."""
        assert self._kv is not None, f"'{self.model}' only encodes."
        return self._kv

    @property
    def steps(self) -> TokenSteps:
        assert self._steps is not None, f"'{self.model}' only encodes."
        return self._steps

    # Coming and going

    def admit(self, request: Request) -> LanguageState | Refused | Shortfall:
        wrong = self._objection(request)
        if wrong is not None:
            return Refused(wrong)
        assert isinstance(request, TextRequest)
        kv, steps = self.kv_cache, self.steps
        max_len = min(len(request.token_ids) + request.sampling.max_tokens, self.shape.max_len)
        state = LanguageState(request, self._served, KvMemory(request.id, request.cache_salt), max_len)
        has_room = False
        try:
            steps.begin(state)
            missing = self._missing_pages(state)
            has_room = kv.can_take(missing + sum(map(self._missing_pages, self._still_prefilling())))
        finally:
            if not has_room:
                kv.give_back(state.memory, ())
        if not has_room:
            return kv.shortfall(missing)
        self._states[request.id] = self._prefilling[request.id] = state
        return state

    def _objection(self, request: Request) -> HemiolaError | None:
        if not isinstance(request, TextRequest):
            return InvalidRequest("model", f"Invalid 'model': '{self.model}' makes text, not pictures.")
        if self._kv is None:
            return InvalidRequest("model", f"Invalid 'model': '{self.model}' only encodes; it generates no text.")
        ids, max_len, vocab_size = request.token_ids, self.shape.max_len, self.shape.vocab_size
        if not ids:
            return InvalidRequest("prompt", "Invalid 'prompt': no tokens. At least one is needed.", "empty_array")
        if len(ids) >= max_len:
            return ContextTooLong(
                "prompt", f"This model's maximum context length is {max_len} tokens. The prompt has {len(ids)}."
            )
        if min(ids) < 0 or max(ids) >= vocab_size:
            return InvalidRequest("prompt", f"Invalid 'prompt': token ids of '{self.model}' lie in [0, {vocab_size}).")
        num_pages = self._kv.pages_for(min(len(ids) + request.sampling.max_tokens, max_len))
        if not self._kv.could_ever_take(num_pages):
            return CannotFit(
                f"A prompt of {len(ids)} tokens with {request.sampling.max_tokens} more",
                num_pages * self._kv.page_bytes,
                self._kv.arena.nbytes,
                "Lower 'max_tokens', or raise the engine's 'memory_bytes'.",
            )
        return None

    def _still_prefilling(self) -> Iterable[LanguageState]:
        """Admitted requests that have not taken all pages of their prompts."""
        done = [state for state in self._prefilling.values() if state.num_computed >= state.prompt_len]
        for state in done:
            del self._prefilling[state.id]
        return [state for state in self._prefilling.values() if state.memory.copy is None]

    def _missing_pages(self, state: LanguageState) -> int:
        """Pages that the rest of the prompt will take, apart from those that somebody else computes."""
        memory, kv = state.memory, self.kv_cache
        shared = memory.waits.waits_until // kv.page_len if memory.waits is not None else 0
        return kv.pages_for(state.prompt_len) - max(len(memory.pages), shared)

    def stop(self, state: State) -> Sequence[Event]:
        assert isinstance(state, LanguageState), "Encodings have no answer that could be complete early."
        return [finished(state, "stop")]

    def release(self, state: State, error: HemiolaError | None = None) -> None:
        if isinstance(state, EncodeState):
            self._encodings.release(state, error)
        elif self._states.pop(state.id, None) is not None:
            self._prefilling.pop(state.id, None)
            computed = state.token_ids[: state.num_computed]
            self.kv_cache.give_back(state.memory, computed)
            program = state.request.program
            if program is not None and program.keeps_prefix and error is None:
                self.kv_cache.keep(program.id, state.memory, computed)
            self._give_row_back(state)

    def let_go(self, program: str | None) -> bool:
        return self._kv is not None and self._kv.let_go(program)

    def _give_row_back(self, state: LanguageState) -> None:
        if state.row >= 0:
            self.steps.table.give_back(state.row)
            state.row = -1

    # Parking

    def park(self, state: State) -> Pending | Shortfall:
        assert isinstance(state, LanguageState) and state.can_park, f"'{state.id}' cannot be parked."
        stopwatch = Stopwatch(self._device)
        shortfall = self.kv_cache.park(state.memory, state.num_computed)
        if shortfall is not None:
            return shortfall
        self._give_row_back(state)
        return stopwatch.stop()

    def resume(self, state: State) -> Pending | Shortfall:
        assert isinstance(state, LanguageState)
        stopwatch, kv = Stopwatch(self._device), self.kv_cache
        shortfall = kv.resume(state.memory, state.token_ids, state.num_computed)
        if shortfall is not None:
            return shortfall
        state.row = self.steps.table.take()
        self.steps.table.set_pages(state.row, 0, state.memory.pages)
        if state.num_computed < state.prompt_len:
            kv.promise(state.memory, state.request.token_ids)
        return stopwatch.stop()

    def _moved(self, moves: Mapping[int, int]) -> None:
        for state in self._states.values():
            memory = state.memory
            if not moves.keys().isdisjoint(memory.pages):
                memory.pages = [moves.get(page, page) for page in memory.pages]
                if state.row >= 0:
                    self.steps.table.set_pages(state.row, 0, memory.pages)
            memory.parked_pages = [moves.get(page, page) for page in memory.parked_pages]
        if self.steps.graphs is not None:
            self.steps.graphs.moved(moves)

    # Steps

    def chores(self) -> Iterable[EncodeState]:
        return self._encodings.chores()

    def plan(self, states: Sequence[State], quantum: Quantum) -> Batch | Shortfall:
        if isinstance(states[0], EncodeState):
            return self._encodings.plan(cast(Sequence[EncodeState], states), quantum)
        assert isinstance(quantum, Tokens), f"Text is cut in tokens, not {quantum}."
        return self.steps.plan(cast(Sequence[LanguageState], states), quantum)

    def launch(self, batch: Batch, slot: Slot) -> Pending:
        pending: Pending = self._maker(batch).launch(batch.payload, slot)
        return pending

    def collect(self, batch: Batch, pending: Pending) -> Sequence[StepOutput]:
        outputs: Sequence[StepOutput] = self._maker(batch).collect(batch.payload)
        return outputs

    def cancel(self, batch: Batch) -> None:
        self._maker(batch).cancel(batch.payload)

    def _maker(self, batch: Batch) -> Any:
        return self._encodings if isinstance(batch.states[0], EncodeState) else self.steps

    # Encoding for others

    def encode(self, token_ids: Sequence[int], hidden_state: int, parent: Terms) -> Encoding:
        """See `core.text_encoder.TextEncoder`."""
        return self._encodings.encode(token_ids, hidden_state, parent)
