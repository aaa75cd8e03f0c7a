"""A token's bytes are those that it adds to the text, even where it is only a part of a character."""

from pathlib import Path

import pytest

from hemiola.llm.token_bytes import token_bytes

from .test_detokenize import TEXTS, byte_level, sentence_pieces


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_the_bytes_of_all_tokens_are_the_text(tmp_path: Path, text: str) -> None:
    tokenizer = byte_level(tmp_path)
    parts = [token_bytes(tokenizer, token_id) for token_id in tokenizer.encode(text)]
    assert b"".join(part for part in parts if part is not None).decode() == text


def test_sentence_pieces_give_spaces_and_single_bytes(tmp_path: Path) -> None:
    tokenizer = sentence_pieces(tmp_path)
    parts = [token_bytes(tokenizer, token_id) for token_id in tokenizer.encode("Hello é漢")]
    assert b"".join(part or b"" for part in parts) == " Hello é漢".encode()
    assert b"\xc3" in parts and b"\xa9" in parts


def test_special_tokens_have_none(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    end, call = tokenizer.id_of("<|end|>"), tokenizer.id_of("<tool call>")
    assert end is not None and token_bytes(tokenizer, end) is None
    assert call is not None and token_bytes(tokenizer, call) == b"<tool call>"
    assert token_bytes(tokenizer, 10**6) is None
