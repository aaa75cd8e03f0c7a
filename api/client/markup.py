"""Puts the parts of an answer, which servers tell apart, together again as the models write them (Qwen/Hermes markup).

    reasoning \\n</think>\\n\\n text <tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>

So events of a server read like those of an engine. White space between the parts is the usual one, not the model's own;
that reasoning begins is taken to be said by the prompt.
"""

import json


class Markup:
    """Of one answer: each method gives what a part adds."""

    def __init__(self) -> None:
        self._part = "start"

    def reasoning(self, piece: str) -> str:
        self._part = "reasoning"
        return piece

    def text(self, piece: str) -> str:
        before = self._closing()
        self._part = "text"
        return before + piece

    def call(self, name: str) -> str:
        """A tool call begins."""
        gap = "\n" if self._part in ("text", "call") else ""
        before = self._closing()
        self._part = "call"
        return f'{before}{gap}<tool_call>\n{{"name": {json.dumps(name)}, "arguments": '

    def end(self, *, is_cut: bool) -> str:
        """The answer is over; if it was cut off, nothing more belongs to it."""
        return "" if is_cut or self._part == "reasoning" else self._closing()

    def _closing(self) -> str:
        if self._part == "reasoning":
            return "\n</think>\n\n"
        return "}\n</tool_call>" if self._part == "call" else ""
