"""How long nodes will take, as others of their kind took, and so how much waits for each. Knows no engine."""

from collections.abc import Sequence

from .expressions import Gen, Media, Select
from .graph import Kind, Node

# Seconds per unit of size, before anything was seen. Only what they are in proportion to each other matters much.
_GUESSES: dict[Kind, float] = {"gen": 0.02, "select": 0.1, "image": 0.3, "video": 0.6}
_USUAL_TOKENS, _USUAL_STEPS = 128, 16
_NEWEST = 0.3  # weight of the newest of all that were seen
_MOST_BEHIND_S = 600.0


def size_of(asked: Gen | Select | Media) -> float:
    """How much there is to do, to be compared with others of its kind: tokens at most, denoise steps, choices."""
    if isinstance(asked, Gen):
        return float(asked.options.get("max_tokens", _USUAL_TOKENS))
    if isinstance(asked, Media):
        return float(asked.options.get("num_inference_steps", _USUAL_STEPS))
    return float(len(asked.choices))


def model_of(asked: Gen | Select | Media) -> str | None:
    """As it was named."""
    return asked.model if isinstance(asked, Select) else asked.options.get("model")


class Forecasts:
    """Seconds per unit of size, by kind of node and model: a running mean of what was seen on one engine."""

    def __init__(self) -> None:
        self._rates: dict[tuple[Kind, str | None], float] = {}

    def learn(self, node: Node) -> None:
        """From one that has ended well."""
        if node.submitted_s is not None and node.ended_s is not None:
            rate = (node.ended_s - node.submitted_s) / max(node.size, 1.0)
            before = self._rates.get((node.kind, node.model), rate)
            self._rates[node.kind, node.model] = before + _NEWEST * (rate - before)

    def seconds(self, node: Node) -> float:
        """From asking to the end, other things being as they were."""
        return self._rates.get((node.kind, node.model), _GUESSES[node.kind]) * node.size

    def behind(self, nodes: Sequence[Node]) -> list[float]:
        """For each node, the seconds of the longest chain of nodes that cannot begin before it has ended.

        Args:
            nodes: all of a program, in order of creation: what a node needs comes before it.
        """
        behind_s = [0.0] * len(nodes)
        for node in reversed(nodes):
            with_it = behind_s[node.idx] + self.seconds(node)
            for each in node.inputs:
                behind_s[each.idx] = max(behind_s[each.idx], with_it)
        return [min(each, _MOST_BEHIND_S) for each in behind_s]
