"""Reads one tool call between its marks: `{"name": "f", "arguments": {...}}`, as it comes.

Arguments are kept as the very characters that were generated, so that a conversation rendered again gives the same
tokens; they are passed on before the call is over. A call that is written in another way (other keys, another order)
is read when it is over. Whether arguments are valid is for the caller to see: models do not always write valid JSON.
"""

import json
import re
from dataclasses import dataclass

from hemiola.llm.detokenize import overlap

CALL_END = "</tool_call>"

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')
# Runs of characters that change nothing, outside and inside a string.
_PLAIN = re.compile(r'[^"{}\[\]<]+')
_QUOTED = re.compile(r'[^"\\\n]+')


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A well-formed call: its name, and its arguments as JSON text."""

    name: str
    arguments: str


class CallReader:
    """Of one call: `feed` it what comes after `<tool_call>`.

    Fields:
        name: once it is known; from then on it is a call, whatever follows.
        unread: what came while there was no name.
        is_malformed: it is over, and was no call.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.unread = ""
        self.is_malformed = False
        self._arguments = _Arguments()
        self._held = ""

    def feed(self, text: str, is_end: bool) -> tuple[str, str | None]:
        """More characters of arguments, and what follows the call once it is over, else None."""
        if self.name is not None:
            return self._feed_arguments(text, is_end)
        self.unread += text
        end = self.unread.find(CALL_END)
        body_len = len(self.unread) if end < 0 else end
        head = _HEAD.match(self.unread, 0, body_len)
        name = None if head is None else _parsed_string(head["name"])
        if head is not None and name is not None:
            self.name = name
            return self._feed_arguments(self.unread[head.end() :], is_end)
        if end < 0:
            return "", None
        rest = self.unread[end + len(CALL_END) :]
        self.unread = self.unread[:end]
        call = parse_call(self.unread)
        if call is None:
            self.is_malformed = True
            return "", rest
        self.name = call.name
        return call.arguments, rest

    def _feed_arguments(self, text: str, is_end: bool) -> tuple[str, str | None]:
        text, self._held = self._held + text, ""
        num_read = self._arguments.scan(text, is_end)
        arguments, text = text[:num_read], text[num_read:]
        if self._arguments.is_open:
            self._held = text
            return arguments, None
        dropped, mark, rest = text.partition(CALL_END)
        # Between broken arguments and the mark nothing is dropped: where they ought to have ended is not known.
        kept = dropped if self._arguments.is_broken else ""
        if mark:
            return arguments + kept, rest
        num_held = 0 if is_end else overlap(text, CALL_END)
        self._held = text[len(text) - num_held :]
        return arguments + kept.removesuffix(self._held), None


class _Arguments:
    """Finds where a JSON object ends, without keeping it. Line breaks in strings are let pass: models write them.

    Fields:
        is_broken: no JSON: the call ends inside a string, or a tag stands outside of one.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self._is_closed = False
        self._depth = 0
        self._is_quoted = False
        self._is_escaped = False

    @property
    def is_open(self) -> bool:
        """Whether there may be more of it."""
        return not (self._is_closed or self.is_broken)

    def scan(self, text: str, is_end: bool) -> int:
        """How many of the characters belong to the object for certain."""
        at = 0
        while at < len(text) and self.is_open:
            run = (_QUOTED if self._is_quoted else _PLAIN).match(text, at) if not self._is_escaped else None
            if run is not None:
                at = run.end()
                continue
            if self._is_quoted and not self._is_escaped and text[at] == "\n":
                behind = text[at + 1 : at + 1 + len(CALL_END)]
                if behind == CALL_END:
                    self.is_broken = True
                    break
                if CALL_END.startswith(behind) and not is_end:
                    break
            self._take(text[at])
            at += not self.is_broken
        return at

    def _take(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._is_quoted:
            self._is_escaped = character == "\\"
            self._is_quoted = character != '"'
        elif character == "<":
            self.is_broken = True
        else:
            self._is_quoted = character == '"'
            self._depth += (character in "{[") - (character in "}]")
            self._is_closed = self._depth == 0 and not self._is_quoted


def parse_call(body: str) -> ParsedCall | None:
    """A call from the whole JSON between the marks; None unless it is an object of a name and arguments."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    return ParsedCall(
        value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )


def _parsed_string(text: str) -> str | None:
    try:
        name: str = json.loads(text)
    except ValueError:
        return None
    return name
