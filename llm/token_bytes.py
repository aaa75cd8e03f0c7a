"""The bytes of UTF-8 that a token stands for, which may be only a part of a character. No torch."""

import re
from functools import lru_cache

from .tokenizer import TextTokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "▁"  # as sentence pieces write a space


def token_bytes(tokenizer: TextTokenizer, token_id: int) -> bytes | None:
    """None for a token that has no text: there is none of that id, or it is special and never shown.

    Tokenizers that are neither byte-level nor of sentence pieces give what the token alone decodes to.
    """
    token = tokenizer.token(token_id)
    if token is None or token_id in tokenizer.special_ids:
        return None
    if tokenizer.is_byte_level:
        return byte_level_bytes(token)
    byte = _BYTE.fullmatch(token)
    if byte is not None:
        return bytes([int(byte[1], 16)])
    if _SPACE in token:
        return token.replace(_SPACE, " ").encode()
    return tokenizer.decode([token_id]).encode()


def byte_level_bytes(token: str) -> bytes:
    """Of a token as a byte-level vocabulary writes it."""
    table = _byte_of()
    try:
        return bytes([table[character] for character in token])
    except KeyError:  # an added token that is written as it is
        return token.encode()


@lru_cache
def _byte_of() -> dict[str, int]:
    """Byte-level vocabularies write a byte as a character: printable ones as themselves, others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
