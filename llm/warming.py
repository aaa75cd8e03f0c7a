"""What a language model has built before its first request: kernels of every kind of step, and the decode graphs.

Kernels are compiled by running them: two requests go through the runner, with nobody else there, whose prompts are long
enough to be cut; and one encoding.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..core.errors import StepFailed
from ..core.request import Sampling, Terms, TextRequest
from ..core.step import Blocks, Quantum, Refused, Shortfall, Slot, Tokens
from ..core.warm_up import WarmUp
from ..kernels.attention import ScoreOptions
from ..kernels.warm import warm_attention

if TYPE_CHECKING:
    from .runner import LanguageRunner, State
    from .state import LanguageState

_PROMPT_LEN = 48
_CHUNK = 32
_SAMPLED = Sampling(temperature=1.0, top_p=0.9, top_k=50, max_tokens=4, logprobs=1)
_GREEDY = Sampling(temperature=0.0, max_tokens=4)


def warm_ups(runner: "LanguageRunner") -> Iterable[WarmUp]:
    """See `core.warm_up.HasWarmUps`."""
    name = runner.model
    yield WarmUp(f"{name}: attention kernels", 90.0, lambda: warm_attention(runner.attention_target, _kinds(runner)))
    yield WarmUp(f"{name}: kernels of encoding", 20.0, lambda: _run_encoding(runner))
    if not runner.generates:
        return
    yield WarmUp(f"{name}: kernels of prefill, decode and sampling", 60.0, lambda: _run_requests(runner))
    graphs = runner.steps.graphs
    if graphs is None:
        return
    for size in reversed(graphs.sizes):  # the largest first: the others find their scratch memory there
        yield WarmUp(f"{name}: decode graph of {size} rows", 1.0, partial(graphs.build, size))


def _kinds(runner: "LanguageRunner") -> Iterable[ScoreOptions]:
    """One of each kind of layer: kernels know whether there is a window, and not how long it is."""
    needs = runner.shape.attention_needs
    for window in (None, 1) if "window" in needs else (None,):
        yield ScoreOptions(1.0, 1.0 if "softcap" in needs else None, window)


def _run_requests(runner: "LanguageRunner") -> None:
    """Two requests, one behind the other, so that chunks alone, both together, and decodes alone are run."""
    length = min(_PROMPT_LEN, runner.shape.max_len - _GREEDY.max_tokens)
    states: list[LanguageState] = []
    try:
        for number, sampling in enumerate((_SAMPLED, _GREEDY)):
            request = TextRequest(
                id=f"warm-up:{number}",
                model=runner.model,
                token_ids=tuple(i % runner.shape.vocab_size for i in range(length)),
                sampling=sampling,
                cache_salt=f"warm-up:{number}",
            )
            state = runner.admit(request)
            if isinstance(state, Refused | Shortfall):
                raise StepFailed(f"'{runner.model}' has no room for a prompt of {length} tokens: {state}")
            states.append(state)
            _run_one(runner, states)
        while any(state.is_ready for state in states):
            _run_one(runner, states)
    finally:
        for state in states:
            runner.release(state)
    if runner.kv_cache.prefixes is not None:
        runner.kv_cache.prefixes.flush()


def _run_one(runner: "LanguageRunner", states: "list[LanguageState]") -> None:
    _run_step(runner, [state for state in states if state.is_ready], Tokens(_CHUNK))


def _run_encoding(runner: "LanguageRunner") -> None:
    length = min(_PROMPT_LEN, runner.shape.max_len)
    token_ids = tuple(i % runner.shape.vocab_size for i in range(length))
    encoding = runner.encode(token_ids, -2, Terms(id="warm-up", model=runner.model))
    try:
        for state in runner.chores():
            while state.is_ready:
                _run_step(runner, [state], Blocks(state.next_block, state.num_blocks - 1))
    finally:
        encoding.release()


def _run_step(runner: "LanguageRunner", states: "Sequence[State]", quantum: Quantum) -> None:
    batch = runner.plan(states, quantum)
    if isinstance(batch, Shortfall):
        raise StepFailed(f"'{runner.model}' has no room for a step over {len(states)} short prompts: {batch}")
    pending = runner.launch(batch, Slot(runner.lane, 1.0, 0, 0.0))
    pending.wait()
    runner.collect(batch, pending)
