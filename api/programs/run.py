"""What a finished run gives: values by name, forks, failures, and its trace. Nothing here waits."""

from typing import Any

from ..results import Scores
from .execution import Execution
from .graph import Node, NodeFailed
from .state import State
from .trace import Trace


class Branch:
    """A state whose nodes have all ended.

    Reading a variable whose node failed raises NodeFailed.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.forks = [Branch(fork) for fork in state.forks]

    def __getitem__(self, name: str) -> Any:
        return self._state[name].value

    def __contains__(self, name: object) -> bool:
        return name in self._state

    @property
    def names(self) -> tuple[str, ...]:
        """Of all variables."""
        return self._state.names

    def scores(self, name: str) -> Scores:
        """Of all choices of a `select`."""
        scores: Scores = self._state.scores(name).value
        return scores

    def text(self) -> str:
        """All that was said."""
        return str(self._state.text())

    def messages(self) -> list[dict[str, Any]]:
        """All that was said, as the OpenAI API has it."""
        messages: list[dict[str, Any]] = self._state.messages().value
        return messages


class Run(Branch):
    """A program's finished run.

    Fields:
        id: the engine's requests are called `<id>-<node>`.
        seconds: from beginning to end.
    """

    def __init__(self, execution: Execution, state: State, seconds: float) -> None:
        super().__init__(state)
        self._execution = execution
        self.id = execution.id
        self.seconds = seconds

    @property
    def nodes(self) -> list[Node]:
        """In order of creation."""
        return self._execution.nodes

    @property
    def errors(self) -> list[NodeFailed]:
        """Of all nodes that failed, also by others that they needed."""
        return [node.error for node in self.nodes if isinstance(node.error, NodeFailed)]

    def raise_for_errors(self) -> "Run":
        """Itself.

        Raises:
            NodeFailed: the first failure.
        """
        for error in self.errors:
            raise error
        return self

    def trace(self) -> Trace:
        """What ran when, and what it cost."""
        return Trace.of(self.nodes, self._execution.started_s)
