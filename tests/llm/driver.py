"""Drives a runner without the scheduler: plans, launches and collects until all is done."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hemiola.core.events import Failed, Finished, Token
from hemiola.core.request import Sampling, TextRequest
from hemiola.core.step import Batch, Blocks, Quantum, Shortfall, Slot, Tokens, Whole
from hemiola.llm import LanguageRunner

MakeRunner = Callable[..., LanguageRunner]
"""What the fixture `make_runner` gives."""


def ask(id: str, token_ids: Sequence[int], max_tokens: int = 8, cache_salt: str = "", **sampling: Any) -> TextRequest:
    sampling.setdefault("temperature", 0.0)
    return TextRequest(
        id=id,
        model="tiny",
        token_ids=tuple(token_ids),
        cache_salt=cache_salt,
        sampling=Sampling(max_tokens=max_tokens, **sampling),
    )


@dataclass
class Driver:
    """Fields:
    quantum: tokens of a step.
    depth: steps in flight.
    launched: (states, work) of each step so far.
    """

    runner: Any
    quantum: int = 512
    depth: int = 1
    states: dict[str, Any] = field(default_factory=dict)
    chores: list[Any] = field(default_factory=list)
    events: dict[str, list[Any]] = field(default_factory=dict)
    launched: list[Batch] = field(default_factory=list)
    in_flight: deque[Any] = field(default_factory=deque)
    sequence: int = 0

    def admit(self, *requests: TextRequest) -> list[Any]:
        admitted = []
        for request in requests:
            state = self.runner.admit(request)
            admitted.append(state)
            if hasattr(state, "cut"):
                self.states[request.id] = state
                self.events[request.id] = []
        return admitted

    def run(self, *requests: TextRequest, limit: int = 10_000) -> dict[str, list[int]]:
        """Tokens of all requests, once all are done."""
        self.admit(*requests)
        while self.step():
            limit -= 1
            assert limit > 0, "It does not end."
        assert not self.states, {state.id: state.waiting_for for state in self.states.values()}
        return {request.id: self.tokens(request.id) for request in requests}

    def step(self) -> bool:
        """One launch if there is room, and one collect."""
        self.chores += self.runner.chores()
        has_launched = len(self.in_flight) < self.depth and self.launch()
        if self.in_flight and (len(self.in_flight) >= self.depth or not has_launched):
            self.collect()
            return True
        return has_launched

    def launch(self) -> bool:
        flying = [state for batch, _ in self.in_flight for state in batch.states]
        ready = [
            state
            for state in [*self.states.values(), *self.chores]
            if state.is_ready and sum(one is state for one in flying) < self.depth
        ]
        if not ready:
            return False
        group = [state for state in ready if state.batch_key == ready[0].batch_key]
        group.sort(key=lambda state: isinstance(state.cut, Tokens) and state.cut.max > 1)
        batch = self.plan(group)
        if isinstance(batch, Shortfall):
            return False
        self.sequence += 1
        self.launched.append(batch)
        slot = Slot("device", 1.0, self.sequence, float(self.sequence))
        self.in_flight.append((batch, self.runner.launch(batch, slot)))
        return True

    def plan(self, group: list[Any]) -> Batch | Shortfall:
        cut = group[0].cut
        quantum: Quantum = Whole()
        if isinstance(cut, Tokens):
            quantum = Tokens(self.quantum)
        elif isinstance(cut, Blocks):
            quantum = Blocks(cut.first, cut.first)
        planned: Batch | Shortfall = self.runner.plan(group, quantum)
        return planned

    def collect(self) -> None:
        batch, pending = self.in_flight.popleft()
        assert pending.done() and pending.seconds >= 0
        for output in self.runner.collect(batch, pending):
            if output.state in self.chores:
                assert output.is_final
                self.chores.remove(output.state)
            elif output.state.id in self.states:
                self.events[output.state.id] += output.events
                if not output.is_final:
                    continue
                del self.states[output.state.id]
            else:
                continue
            self.runner.release(output.state)

    def abort(self, id: str) -> None:
        self.runner.release(self.states.pop(id))

    def tokens(self, id: str) -> list[int]:
        return [event.token_id for event in self.events[id] if isinstance(event, Token)]

    def finished(self, id: str) -> Finished:
        """The good end of a request: its last event, and the only end that it was told."""
        (final,) = [event for event in self.events[id] if isinstance(event, Finished | Failed)]
        assert self.events[id][-1] is final
        assert isinstance(final, Finished), final
        return final
