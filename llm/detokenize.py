"""Token ids to text as they come: never half a character, and nothing that may turn out to begin a stop string.

What the pieces add up to is what the tokenizer makes of all tokens at once, apart from an unfinished character at the
very end, and from ids that it does not have: those are shown as numbers. No torch.
"""

import codecs
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .token_bytes import byte_level_bytes
from .tokenizer import TextTokenizer

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
# So many tokens cannot be one character: what they decode to is not UTF-8 and stays so.
_MAX_HELD_TOKENS = 8


class Piece(NamedTuple):
    """What a token adds to the answer. `stopped_by` is the stop string that ended it."""

    text: str
    stopped_by: str | None = None


class Detokenizer:
    """Of one answer.

    Args:
        stops: strings that end the answer; neither they nor what comes after them is shown.
    """

    def __init__(self, tokenizer: TextTokenizer, stops: Sequence[str] = ()) -> None:
        self._pieces: _Pieces = _BytePieces(tokenizer) if tokenizer.is_byte_level else _WindowPieces(tokenizer)
        self._stops = tuple(stops)
        self._held = ""
        self._stopped_by: str | None = None

    def push(self, token_id: int) -> Piece:
        """The next token. After a stop string nothing more is shown."""
        if self._stopped_by is not None:
            return Piece("", self._stopped_by)
        text = self._pieces.push(token_id)
        if not self._stops:
            return Piece(text)
        return self._watch(self._held + text)

    def finish(self) -> str:
        """What was held back for a stop string that did not come. The answer is over."""
        text, self._held = self._held, ""
        return text

    def _watch(self, text: str) -> Piece:
        found = [(at, -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, _, self._stopped_by = min(found)
            self._held = ""
            return Piece(text[:at], self._stopped_by)
        num_held = max(overlap(text, stop) for stop in self._stops)
        shown, self._held = text[: len(text) - num_held], text[len(text) - num_held :]
        return Piece(shown)


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that is a beginning of the stop string."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def number_of(token_id: int) -> str:
    """Of a token without text. Models have more rows than their tokenizer; with random weights they are chosen."""
    return f"⟨{token_id}⟩"


class _Pieces(Protocol):
    def push(self, token_id: int) -> str:
        """Text that is complete with this token."""
        ...


class _BytePieces:
    """For byte-level tokenizers: the tokens' bytes through an incremental UTF-8 decoder."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        token = self._tokenizer.token(token_id)
        if token is None:
            return number_of(token_id)
        if token_id in self._tokenizer.special_ids:
            return ""
        return self._decoder.decode(byte_level_bytes(token))


class _WindowPieces:
    """For any tokenizer: decodes a short window of tokens with and without the new one, and takes the difference."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._num_shown = 0

    def push(self, token_id: int) -> str:
        if self._tokenizer.token(token_id) is None:
            return number_of(token_id)
        self._window.append(token_id)
        before = self._tokenizer.decode(self._window[: self._num_shown])
        now = self._tokenizer.decode(self._window)
        is_held = now.endswith(_UNFINISHED) and len(self._window) - self._num_shown < _MAX_HELD_TOKENS
        if len(now) <= len(before) or is_held:
            return ""
        del self._window[: self._num_shown]
        self._num_shown = len(self._window)
        return now[len(before) :]
