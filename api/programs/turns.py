"""A conversation of texts that are partly not there yet. Says what to send; knows no engine.

A turn without a role is plain text. Turns are frozen: forks share them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hemiola.core.errors import InvalidRequest

from .graph import Node, Outcome, distinct
from .values import Text, nodes_of, text_of

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Generated:
    """What a node adds to its turn. `choice`: which of its answers was kept, where it has several."""

    node: Node
    is_plural: bool = False
    choice: Text | int | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node, *(nodes_of(self.choice) if not isinstance(self.choice, int | None) else ()))

    @property
    def outcome(self) -> Outcome:
        """Once the nodes have ended well."""
        outcome = self.node.result.result()
        if not self.is_plural:
            return outcome
        choice = self.choice if isinstance(self.choice, int) else text_of(self.choice or "")
        try:
            text: str = outcome.value[int(choice)]
        except (ValueError, IndexError) as error:
            name = self.node.name
            wrong = f"Invalid index of s.keep('{name}', ...): {choice!r}. There are {len(outcome.value)} answers."
            raise InvalidRequest(name, wrong) from error
        return Outcome(text, text, text)


Part = Text | Generated


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker says; without a role, plain text."""

    role: str
    parts: tuple[Part, ...] = ()

    def and_then(self, part: Part) -> "Turn":
        return replace(self, parts=(*self.parts, part))

    @property
    def nodes(self) -> tuple[Node, ...]:
        return distinct(node for part in self.parts for node in _nodes_of(part))

    @property
    def text(self) -> str:
        """What the reader sees."""
        return "".join(part.outcome.text or "" if isinstance(part, Generated) else text_of(part) for part in self.parts)

    @property
    def raw(self) -> str:
        """The same as the model wrote it, so that it can go on."""
        return "".join(part.outcome.raw if isinstance(part, Generated) else text_of(part) for part in self.parts)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """As a conversation has it once the turn is over; calls of tools come first, with what they gave."""
        before = [each for part in self.parts if isinstance(part, Generated) for each in part.outcome.before]
        return [*map(dict, before), self.message]

    @property
    def has_calls(self) -> bool:
        """Whether tools were called in it."""
        return any(isinstance(part, Generated) and part.outcome.before for part in self.parts)

    @property
    def message(self) -> dict[str, Any]:
        """What was said at last."""
        thoughts = [part.outcome.reasoning for part in self.parts if isinstance(part, Generated)]
        reasoning = [each for each in thoughts if each is not None]
        return {"role": self.role, "content": self.text} | ({"reasoning_content": reasoning[0]} if reasoning else {})


def _nodes_of(part: Part) -> tuple[Node, ...]:
    return part.nodes if isinstance(part, Generated) else nodes_of(part)


def nodes_in(turns: Sequence[Turn]) -> tuple[Node, ...]:
    """All that the turns wait for.

    Raises:
        InvalidRequest: somewhere several answers are still to be chosen from.
    """
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Generated) and part.is_plural and part.choice is None:
                name = part.node.name
                text = f"'{name}' has several answers: choose how to go on with s.keep('{name}', index)."
                raise InvalidRequest(name, text)
    return distinct(node for turn in turns for node in turn.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class TextOf:
    """Reads all that was said, as text."""

    turns: tuple[Turn, ...]

    def __call__(self) -> str:
        return as_text(self.turns)


def is_conversation(turns: Sequence[Turn]) -> bool:
    """Whether somebody speaks; else it is plain text, or nothing yet."""
    return bool(turns) and turns[0].role != ""


def as_messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Once all nodes have ended well; plain text is no message.

    Raises:
        InvalidRequest: it is plain text.
    """
    if turns and not is_conversation(turns):
        raise InvalidRequest("messages", "Plain text has no messages: begin with system(...) or user(...).")
    return [message for turn in turns for message in turn.messages]


def as_text(turns: Sequence[Turn]) -> str:
    """Everything in reading order, a line for each speaker; plain text as it is."""
    if not is_conversation(turns):
        return "".join(turn.text for turn in turns)
    return "\n".join(f"{turn.role}: {turn.text}" for turn in turns)


def added_since(before: Sequence[Turn], after: Sequence[Turn]) -> list[Turn]:
    """What `after` has beyond `before`, from which it was forked: the rest of a turn first, then whole turns."""
    if not before:
        return list(after)
    last, now = before[-1], after[len(before) - 1]
    rest = now.parts[len(last.parts) :]
    return [*([Turn(now.role, rest)] if rest else []), *after[len(before) :]]
