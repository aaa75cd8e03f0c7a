"""Policies order ready steps and say how much of the next one may run now.

A policy sees groups of states that may share a launch: their costs, due times, priorities, cuts. It never sees a model
or a tensor, and it never asks what a step computes: a step is cut in tokens or in blocks, or it is whole.

To add one: a class with `choose` and `account`, registered in POLICIES.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

from hemiola.core.service import SERVICE_CLASSES
from hemiola.core.step import Blocks, Quantum, Runner, StateView, Tokens, Whole, Work, total_work

from .cost_model import ALONE, CostModel, LaneUse

_LEAST_CHUNK = 16  # tokens of a prefill that run with every step, so that decoding rows never starve it
_MOST_ACCOUNTS = 1024
Party = tuple[str, str]
party: Callable[[StateView], Party] = attrgetter("service_class", "tenant")
"""Between parties (service class, tenant), device time is shared fairly."""


@dataclass(slots=True)
class Group:
    """Ready states that may share one launch of one runner."""

    runner: Runner[Any]
    lane: str
    states: list[Any]

    @property
    def head(self) -> StateView:
        state: StateView = self.states[0]
        return state


@dataclass(frozen=True, slots=True)
class Choice:
    """Launch this group, its states in order, with this quantum on this share of the SMs."""

    group: Group
    quantum: Quantum
    sm_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a quantum.

    Fields:
        quantum_s: of blocks, whoever waits, since text may come.
        tokens_s, idle_tokens_s: of tokens, while anybody else waits for the lane and while nobody does.
        max_batch_tokens: in one step, whoever waits.
    """

    quantum_s: float = 0.05
    tokens_s: float = 0.05
    idle_tokens_s: float = 0.2
    max_batch_tokens: int = 2048


class Policy(Protocol):
    """Chooses what runs next."""

    def choose(self, groups: Sequence[Group], now_s: float, use: LaneUse = ALONE) -> Choice:
        """One of the groups (there is at least one), ordered and cut. Called once per launch.

        Args:
            groups: those of one lane.
            use: what that lane may have of the device now; a policy may wish for fewer SMs.
        """
        ...

    def account(self, states: Sequence[StateView], seconds: float) -> None:
        """A step over these states took that long on the device."""
        ...


class Fcfs:
    """First come, first served: the group with the earliest arrival runs whole steps. The baseline to beat."""

    def __init__(self, costs: CostModel, limits: Limits) -> None:
        self._limits = limits

    def choose(self, groups: Sequence[Group], now_s: float, use: LaneUse = ALONE) -> Choice:
        group = min(groups, key=lambda g: min((s.priority, s.arrival_s) for s in g.states))
        group.states.sort(key=lambda s: (s.priority, s.arrival_s))
        return Choice(group, whole_quantum(group, self._limits), use.sm_share)

    def account(self, states: Sequence[StateView], seconds: float) -> None:
        """Keeps no accounts."""


def whole_quantum(group: Group, limits: Limits) -> Quantum:
    """All of the next step: what a policy grants that does not care who waits."""
    cut = group.head.cut
    if isinstance(cut, Tokens):
        return Tokens(limits.max_batch_tokens)
    return Blocks(cut.first, cut.last) if isinstance(cut, Blocks) else Whole()


@dataclass(slots=True)
class FairShare:
    """Virtual time, device seconds over weight, of parties or models. Least served first; idling saves nothing."""

    _virtual_s: dict[Hashable, float] = field(default_factory=dict)
    _floor_s: float = 0.0

    def add(self, who: Hashable, seconds: float, weight: float = 1.0) -> None:
        self._virtual_s[who] = self.time(who) + seconds / weight

    def time(self, who: Hashable) -> float:
        return max(self._virtual_s.get(who, 0.0), self._floor_s)

    def advance(self, least_served_s: float) -> None:
        """Nobody who starts to wait now may be further behind than the least served of those who already do."""
        self._floor_s = max(self._floor_s, least_served_s)
        if len(self._virtual_s) > _MOST_ACCOUNTS:  # whoever is at the floor is as one who never came
            self._virtual_s = {who: time for who, time in self._virtual_s.items() if time > self._floor_s}


class Deadline:
    """Earliest due first; fair shares when nothing is due; bounded quanta, so that nobody waits for long.

    Three rules, in this order:
      1. Turns: after a step that is cut in blocks, every ready token group runs once before blocks run again. So
         between two token steps lies at most one media quantum, whatever else is late.
      2. A group is due when another quantum before it would make it miss. Of those, the earliest due runs, as long as
         its party is not `borrow_s` ahead of its fair share. Waiting longer than `patience_s` makes any group due.
      3. Otherwise the least served party (device seconds over weight) runs, and of its models the least served.
    """

    patience_s = 2.0
    borrow_s = 0.1  # virtual seconds

    def __init__(self, costs: CostModel, limits: Limits) -> None:
        self._costs = costs
        self._limits = limits
        self._shares = FairShare()  # of parties
        self._models = FairShare()  # of models, between groups of one party
        self._served_s: dict[Hashable, float] = {}
        self._use = ALONE  # of the choice that is being made
        self._blocks_ran = False
        self._had_turn: set[Hashable] = set()  # token groups that ran since blocks ran

    def choose(self, groups: Sequence[Group], now_s: float, use: LaneUse = ALONE) -> Choice:
        self._use = use
        served = [min(map(self._shares.time, set(map(party, g.states)))) for g in groups]
        self._shares.advance(min(served))
        self._models.advance(min(self._models.time(g.runner.model) for g in groups))
        group = groups[0] if len(groups) == 1 else self._pick(groups, served, now_s)
        quantum = self._cut(group, is_alone=len(groups) == 1)
        self._note(groups, group, now_s)
        return Choice(group, quantum, use.sm_share)

    def account(self, states: Sequence[StateView], seconds: float) -> None:
        share = seconds / max(len(states), 1)
        for who, count in Counter(map(party, states)).items():
            self._shares.add(who, share * count, SERVICE_CLASSES[who[0]].weight)
        self._models.add(states[0].model, seconds)

    def _pick(self, groups: Sequence[Group], served: Sequence[float], now_s: float) -> Group:
        if self._blocks_ran:
            owed = [g for g in groups if isinstance(g.head.cut, Tokens) and _key(g) not in self._had_turn]
            if owed:
                return min(owed, key=_due)
        allowed_s = min(served) + self.borrow_s
        due = [g for g, time in zip(groups, served, strict=True) if time <= allowed_s and self._is_due(g, now_s)]
        if due:
            return min(due, key=lambda g: (_priority(g), _due(g), self._served_s.get(_key(g), 0.0)))
        models = [self._models.time(g.runner.model) for g in groups]
        order = [(_priority(g), served[i], models[i], _due(g), i) for i, g in enumerate(groups)]
        return groups[min(order)[-1]]

    def _seconds(self, cost_key: Hashable, work: Work) -> float:
        return self._costs.seconds(self._use.key(cost_key), work)

    def _is_due(self, group: Group, now_s: float) -> bool:
        served_s = self._served_s.get(_key(group), now_s)
        if now_s - served_s > self.patience_s:
            return True
        head = min(group.states, key=lambda s: s.due_s)
        if head.due_s == math.inf:
            return False
        left_s = self._remaining_s(head)
        return bool(now_s + self._limits.quantum_s + left_s > head.due_s)

    def _remaining_s(self, state: StateView) -> float:
        """Seconds from now to what the due time speaks of: the next token, or the end of the picture."""
        if isinstance(state.cut, Tokens):
            return self._seconds(state.cost_key, state.work)
        return sum(self._seconds(state.cost_key, work) for _, work in state.remaining)

    def _note(self, groups: Sequence[Group], chosen: Group, now_s: float) -> None:
        for group in groups:
            self._served_s.setdefault(_key(group), now_s)
        self._served_s[_key(chosen)] = now_s
        if isinstance(chosen.head.cut, Tokens):
            self._had_turn.add(_key(chosen))
        else:
            self._blocks_ran = True
            self._had_turn.clear()

    def _cut(self, group: Group, is_alone: bool) -> Quantum:
        """How much of the group may run; it is alone if no other waits for the lane."""
        cut = group.head.cut
        if isinstance(cut, Tokens):
            return self._token_quantum(group, is_alone)
        if isinstance(cut, Blocks):
            group.states.sort(key=_urgency)
            return self._block_quantum(group, cut)
        return Whole()

    def _token_quantum(self, group: Group, is_alone: bool) -> Tokens:
        """Rows with one token to do come first; longer ones make the step longer by `tokens_s` at most: than one of
        such rows alone, or than the host needs to launch one. What any step takes is no reason to make it smaller.
        """
        short = [s for s in group.states if s.cut.max == 1]
        if len(short) == len(group.states):
            return Tokens(self._limits.max_batch_tokens)
        long = sorted((s for s in group.states if s.cut.max > 1), key=_urgency)
        group.states = short + long
        work, key = total_work(s.work for s in short), long[0].cost_key
        base_s = self._costs.launch_seconds(key)
        if short:
            base_s = max(base_s, self._short_seconds(short[0].cost_key, key, work))
        limit_s = base_s + (self._limits.idle_tokens_s if is_alone and not short else self._limits.tokens_s)
        tokens, took_s = self._costs.last(self._use.key(key))
        # What a longer one takes is best found out: costs learned from equal chunks alone may be wrong of others.
        untried = 2 * tokens - len(short) if took_s < base_s + self._limits.tokens_s / 2 else 0
        fitting = 0
        for state in long:
            fits = self._fitting_tokens(state, work, limit_s)
            fitting += fits
            work = work.plus(state.work)
            if fits < state.cut.max:
                break
        return Tokens(min(len(short) + max(fitting, untried, _LEAST_CHUNK), self._limits.max_batch_tokens))

    def _short_seconds(self, key: Hashable, mixed_key: Hashable, work: Work) -> float:
        """Of rows with one token to do. While longer ones run in every step, steps of such rows alone teach nothing of
        contexts that have grown since; steps with longer ones do.
        """
        keys = [key, mixed_key] if self._costs.knows(self._use.key(mixed_key)) else [key]
        return min(self._seconds(each, work) for each in keys)

    def _fitting_tokens(self, state: StateView, before: Work, limit_s: float) -> int:
        """How many tokens of the state fit behind the work before it."""
        assert isinstance(state.cut, Tokens)
        key, low, high = state.cost_key, 0, state.cut.max
        if self._seconds(key, before.plus(state.work)) <= limit_s:
            return high
        while high - low > max(1, state.cut.max // 64):
            middle = (low + high) // 2
            fits = self._seconds(key, before.plus(share_of(state.work, middle / state.cut.max))) <= limit_s
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _block_quantum(self, group: Group, cut: Blocks) -> Blocks:
        """As many blocks as fit into a quantum, at least one; one alone while costs are unknown."""
        key = group.head.cost_key
        if not self._costs.knows(self._use.key(key)):
            return Blocks(cut.first, cut.first)
        rows = [s.cut.works for s in group.states]
        done, last = Work(), cut.first
        for index, works in enumerate(zip(*rows, strict=False)):
            done = done.plus(total_work(works))._replace(rows=len(rows), blocks=index + 1)  # see `blocks_work`
            if index and self._seconds(key, done) > self._limits.quantum_s:
                break
            last = cut.first + index
        return Blocks(cut.first, min(last, cut.last))


def share_of(work: Work, share: float) -> Work:
    """That share of a row's prefill. Attended pairs shrink at least as fast as this says: never an underestimate."""
    return Work(*(int(value * share) for value in work))._replace(rows=work.rows, context_tokens=work.context_tokens)


def _urgency(state: StateView) -> tuple[int, float, float]:
    """Where nothing is due, who holds up others counts as having waited so much longer."""
    return state.priority, state.due_s, state.arrival_s - state.behind_s


def _key(group: Group) -> Hashable:
    return group.runner.model, type(group.head.cut)


def _due(group: Group) -> float:
    due_s: float = min(s.due_s for s in group.states)
    return due_s


def _priority(group: Group) -> int:
    priority: int = min(s.priority for s in group.states)
    return priority


class RoundRobin:
    """Models take turns with whole steps, whatever is due: how composite models are often served. For comparison."""

    def __init__(self, costs: CostModel, limits: Limits) -> None:
        self._limits = limits
        self._turns: dict[Hashable, int] = {}

    def choose(self, groups: Sequence[Group], now_s: float, use: LaneUse = ALONE) -> Choice:
        group = min(groups, key=lambda g: self._turns.get(g.runner.model, 0))
        self._turns[group.runner.model] = max(self._turns.values(), default=0) + 1
        return Choice(group, whole_quantum(group, self._limits), use.sm_share)

    def account(self, states: Sequence[StateView], seconds: float) -> None:
        """Keeps no accounts."""


POLICIES: dict[str, Callable[[CostModel, Limits], Policy]] = {
    "fcfs": Fcfs,
    "deadline": Deadline,
    "round-robin": RoundRobin,
}
