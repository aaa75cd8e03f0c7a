"""The chat format in Python: the text of a conversation in pieces, each with or without loss.

It equals chat_template.jinja (a test compares them). The template re-serialises nothing, so a turn's prompt begins
with the whole turn before it, byte for byte. Answers with tool calls are kept as the text the model writes.
"""

import json
from dataclasses import dataclass, field

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIAL = (END_OF_TEXT, IM_START, IM_END)
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_TOOLS_END = (
    '\n</tools>\n\nTo call one, write:\n<tool_call>\n{"name": <function>, "arguments": <JSON object>}\n</tool_call>'
)


@dataclass(frozen=True)
class Turn:
    """A message; `think` is not None when the assistant wrote a thought; has_loss says whether it is learnt."""

    role: str
    content: str
    think: str | None = None
    has_loss: bool = True


@dataclass
class Conversation:
    """Turns with an optional system text and tool definitions."""

    turns: list[Turn] = field(default_factory=list)
    system: str = ""
    tools: list[dict[str, object]] = field(default_factory=list)

    def messages(self) -> list[dict[str, object]]:
        """The conversation as chat clients send it; answers stay the text that was written."""
        found: list[dict[str, object]] = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            message: dict[str, object] = {"role": turn.role, "content": turn.content}
            if turn.think is not None:
                message["reasoning_content"] = turn.think
            found.append(message)
        return found


def head(conversation: Conversation) -> str:
    """The system turn, with the tools block; "" when there is neither."""
    if conversation.tools:
        start = conversation.system + "\n\n" if conversation.system else ""
        listed = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in conversation.tools)
        text = f"{start}# Tools\n\nYou may call these functions:\n<tools>{listed}{_TOOLS_END}"
    else:
        text = conversation.system
    return f"{IM_START}system\n{text}{IM_END}\n" if text else ""


def pieces(conversation: Conversation) -> list[tuple[str, bool]]:
    """The whole text as (text, has_loss) pieces whose borders are borders of tokens too."""
    found = [(head(conversation), False)]
    turns = conversation.turns
    for i, turn in enumerate(turns):
        if turn.role == "assistant":
            opening = f"{IM_START}assistant\n" + ("<think>\n" if turn.think is not None else "")
            thought = f"{turn.think}\n</think>\n\n" if turn.think is not None else ""
            found += [(opening, False), (f"{thought}{turn.content}{IM_END}", turn.has_loss), ("\n", False)]
        elif turn.role == "tool":
            before = "" if i and turns[i - 1].role == "tool" else f"{IM_START}user"
            after = "" if i + 1 < len(turns) and turns[i + 1].role == "tool" else f"{IM_END}\n"
            found.append((f"{before}\n<tool_response>\n{turn.content}\n</tool_response>{after}", False))
        else:
            found.append((f"{IM_START}{turn.role}\n{turn.content}{IM_END}\n", False))
    return [(text, has_loss) for text, has_loss in found if text]


def prompt(conversation: Conversation, is_thinking: bool = False) -> str:
    """The text up to where the model goes on."""
    text = "".join(text for text, _ in pieces(conversation))
    return f"{text}{IM_START}assistant\n" + ("<think>\n" if is_thinking else "")
