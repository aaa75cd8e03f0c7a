"""What a finished run gives: values by name, forks, failures, and its trace. Nothing here waits."""

from pathlib import Path
from typing import Any

from ..results import Scores
from .execution import Execution
from .exporting import export_run, run_frame, run_lines
from .graph import Node, NodeFailed
from .page import branch_html, fragment
from .record import BranchRecord, record_of
from .state import State
from .trace import Trace


class Branch:
    """A state whose nodes have all ended.

    Reading a variable whose node failed raises NodeFailed.
    """

    def __init__(self, state: State, parent: State | None = None) -> None:
        self._state = state
        self._parent = parent
        self.forks = [Branch(fork, state) for fork in state.forks]

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

    @property
    def record(self) -> BranchRecord:
        """All of it as plain values."""
        return record_of(self._state, self._parent)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return fragment(branch_html(self.record))


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

    def export(self, folder: str | Path, *, title: str | None = None) -> Path:
        """Writes a folder that one can look at and pass on: pictures, clips, `run.json`, `trace.json`, `trace.svg`, and
        `index.html`, a page that needs none of the other files. What failed is in it with its error.

        Raises:
            InvalidRequest: a variable has a value that JSON has no word for.
        """
        return export_run(self, Path(folder), title)

    def to_jsonl(self, path: str | Path) -> Path:
        """Writes a line of JSON for the program and each fork, `{"branch", "values"}`; media lie in a folder beside."""
        return run_lines(self, Path(path))

    def to_pandas(self) -> Any:
        """A data frame with a row for the program and each fork, and a column for each variable.

        Raises:
            InvalidRequest: pandas is not installed.
        """
        return run_frame(self)

    def __repr__(self) -> str:
        num, names = len(self.nodes), f"variables: {', '.join(self.names)}" if self.names else "no variables"
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"<Run of {num} call{'s' if num != 1 else ''}{failed}, {self.seconds:.1f} s; {names}>"
