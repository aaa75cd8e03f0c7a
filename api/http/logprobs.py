"""How likely tokens were, as the OpenAI API tells it: for chat as a list of objects, for completions as four lists."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hemiola.core.events import Token
from hemiola.llm.token_bytes import token_bytes
from hemiola.llm.tokenizer import TextTokenizer

LEAST = -9999.0  # in place of minus infinity, for which JSON has no word


def chat_entry(tokenizer: TextTokenizer, token: Token) -> dict[str, Any]:
    """One token of a chat answer. `bytes` are the token's own: those of all tokens in a row are the text's."""
    entry = _named(tokenizer, token.token_id, token.logprob)
    entry["top_logprobs"] = [
        _named(tokenizer, top.token_id, top.logprob) for top in sorted(token.top_logprobs, key=lambda top: -top.logprob)
    ]
    return entry


class CompletionLogprobs:
    """Of one answer of a completion call.

    Args:
        offset: characters that come before the answer.
    """

    def __init__(self, tokenizer: TextTokenizer, offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._offset = offset

    def of(self, tokens: Iterable[Token]) -> dict[str, Sequence[Any]]:
        """The next tokens. The chosen one is always among the likeliest that are told."""
        names, chosen, tops, offsets = [], [], [], []
        for token in tokens:
            name, logprob = self._name(token.token_id), _finite(token.logprob)
            names.append(name)
            chosen.append(logprob)
            likeliest = sorted(token.top_logprobs, key=lambda top: -top.logprob)
            tops.append({self._name(top.token_id): _finite(top.logprob) for top in likeliest} | {name: logprob})
            offsets.append(self._offset)
            self._offset += len(token.text)
        return {"tokens": names, "token_logprobs": chosen, "top_logprobs": tops, "text_offset": offsets}

    def _name(self, token_id: int) -> str:
        return token_name(self._tokenizer, token_id, "bytes:")


def token_name(tokenizer: TextTokenizer, token_id: int, bytes_prefix: str = "") -> str:
    """The token's text; bytes that are not whole characters are written as `\\xf0\\x9f`, behind the prefix."""
    data = token_bytes(tokenizer, token_id)
    if data is None:
        return tokenizer.token(token_id) or ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return bytes_prefix + "".join(f"\\x{byte:02x}" for byte in data)


def _named(tokenizer: TextTokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    data = token_bytes(tokenizer, token_id)
    return {
        "token": token_name(tokenizer, token_id),
        "logprob": _finite(logprob),
        "bytes": None if data is None else list(data),
    }


def _finite(logprob: float | None) -> float:
    return LEAST if logprob is None or not math.isfinite(logprob) else logprob
