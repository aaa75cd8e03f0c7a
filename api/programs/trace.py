"""What a run took: one plain record for each node, and the picture of them. Knows no engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .drawing import Box, draw
from .graph import Node


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node; times in seconds since the run began, None where it never came to that.

    Fields:
        branch: the fork: "" for the program itself.
        place: file and line of the program.
        inputs: indices of the nodes it needed.
        created_s, submitted_s, first_s, ended_s: added; asked for; first event; end.
        prompt_tokens, cached_tokens, completion_tokens: of its last attempt; `cached_tokens` were not computed again.
        error: why it failed.
    """

    idx: int
    kind: str
    name: str
    branch: str
    place: str
    inputs: tuple[int, ...]
    request_ids: tuple[str, ...]
    created_s: float
    submitted_s: float | None
    first_s: float | None
    ended_s: float | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    error: str | None

    @property
    def seconds(self) -> float:
        """From asking to the end; 0 if it never was asked for."""
        return 0.0 if self.submitted_s is None or self.ended_s is None else self.ended_s - self.submitted_s


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes of a run, in order of creation."""

    nodes: tuple[NodeRecord, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], started_s: float) -> "Trace":
        return cls(tuple(_record(node, started_s) for node in nodes))

    @property
    def computed_prompt_tokens(self) -> int:
        """Prompt tokens that no cache had."""
        return sum(node.prompt_tokens - node.cached_tokens for node in self.nodes)

    def draw(self, path: str | Path | None = None) -> str:
        """The graph as SVG: columns by depth; once it ran, colour by time, a bar for the cached part of the prompt.

        Args:
            path: written there as well.
        """
        longest_s = max((each.seconds for each in self.nodes), default=0.0)
        meanings = {"heat": "0 to " + _words(longest_s), "share": "part of the prompt that was cached"}
        svg = draw([_box(node, longest_s) for node in self.nodes], **(meanings if longest_s else {}))
        if path is not None:
            Path(path).write_text(svg, encoding="utf-8")
        return svg

    def to_json(self) -> str:
        """A list of objects, one a node, with NodeRecord's fields."""
        return msgspec.json.encode(self.nodes).decode()

    def _repr_html_(self) -> str:
        return self.draw()


def _record(node: Node, started_s: float) -> NodeRecord:
    def since(time_s: float | None) -> float | None:
        return None if time_s is None else time_s - started_s

    usage: Any = node.usage
    return NodeRecord(
        idx=node.idx,
        kind=node.kind,
        name=node.name,
        branch=node.branch,
        place=str(node.place),
        inputs=tuple(each.idx for each in node.inputs),
        request_ids=node.request_ids,
        created_s=node.created_s - started_s,
        submitted_s=since(node.submitted_s),
        first_s=since(node.first_s),
        ended_s=since(node.ended_s),
        prompt_tokens=usage.prompt_tokens if usage else 0,
        cached_tokens=usage.cached_tokens if usage else 0,
        completion_tokens=usage.completion_tokens if usage else 0,
        error=None if node.error is None else str(node.error),
    )


def _words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def _box(node: NodeRecord, longest_s: float) -> Box:
    title = f"{node.name} [{node.branch}]" if node.branch else node.name
    if node.error is not None:
        detail = f"{node.kind}, failed"
    elif node.ended_s is None:
        detail = node.kind
    elif node.prompt_tokens and node.kind in ("gen", "select"):
        detail = f"{node.kind}, {_words(node.seconds)}, {node.cached_tokens} of {node.prompt_tokens} cached"
    else:
        detail = f"{node.kind}, {_words(node.seconds)}"
    return Box(
        title=title,
        detail=detail,
        tooltip=node.error or f"{node.kind} at {node.place}",
        inputs=node.inputs,
        heat=node.seconds / longest_s if longest_s else 0.0,
        share=node.cached_tokens / node.prompt_tokens if node.prompt_tokens else 0.0,
        is_failed=node.error is not None,
    )
