"""A finished branch of a program as plain values: what is exported and shown. Reads states, asks nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ..results import Scores
from .state import State
from .turns import Turn, as_messages, as_text, is_conversation, nodes_in


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """What a program, or one of its forks, has said and made.

    Fields:
        branch: "" for the program itself, then "0", "0.1", ...
        values: its own variables, without those from before it was forked; an error where a value failed.
        said: turns since it was forked, as messages, up to the first that cannot be told; plain text has none.
        text: the same as text; None where not all can be told, because an answer failed or is still to be chosen.
        scores: of what was selected, by name.
        forks: forks of it, in order.
    """

    branch: str
    values: Mapping[str, Any]
    said: tuple[Mapping[str, Any], ...]
    text: str | None
    scores: Mapping[str, Scores]
    forks: tuple["BranchRecord", ...]

    def walk(self) -> "Iterator[BranchRecord]":
        """Itself, then its forks with theirs, in order."""
        yield self
        for fork in self.forks:
            yield from fork.walk()


def record_of(state: State, parent: State | None = None) -> BranchRecord:
    """Of a state whose nodes have all ended."""
    own = [name for name in state.names if parent is None or name not in parent or state[name] is not parent[name]]
    values = {name: _value(state, name) for name in own}
    turns = state.added
    told = list(takewhile(_can_be_told, turns))
    return BranchRecord(
        state.branch,
        values,
        tuple(as_messages(told)) if is_conversation(told) else (),
        as_text(turns) if len(told) == len(turns) else None,
        {name: scores for name in own if (scores := _scores(state, name)) is not None},
        tuple(record_of(fork, state) for fork in state.forks),
    )


def _can_be_told(turn: Turn) -> bool:
    try:
        return all(node.error is None for node in nodes_in((turn,))) and bool(turn.messages)
    except Exception:  # an answer is still to be chosen from several, or a variable in it cannot be read
        return False


def _value(state: State, name: str) -> Any:
    try:
        return state[name].value
    except Exception as error:  # whatever a variable's reading raises is what it has to tell
        return error


def _scores(state: State, name: str) -> Scores | None:
    nodes = state[name].nodes
    if len(nodes) != 1 or nodes[0].kind != "select" or nodes[0].error is not None:
        return None
    scores: Scores = state.scores(name).value
    return scores
