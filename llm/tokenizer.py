"""Text to token ids and back, from the tokenizer files of a model's folder. No torch."""

import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ..core.errors import CorruptWeights, ModelNotFound


class TextTokenizer:
    """The tokenizer of one model.

    Args:
        folder: has a `tokenizer.json`; other formats are converted by the transformers library.

    Fields:
        vocab_size: ids lie below it; models may have more rows than that.
        num_own_tokens: without those that were added, of which a model may lack some.
        is_byte_level: every token stands for bytes of UTF-8, so that text is the bytes of the tokens in a row.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _load(folder)
        self.vocab_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        decoder = self._tokenizer.decoder
        self.num_own_tokens: int = self._tokenizer.get_vocab_size(with_added_tokens=False)
        self.is_byte_level = decoder is not None and json.loads(decoder.__getstate__()).get("type") == "ByteLevel"
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(id for id, token in added.items() if token.special)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text; special tokens that are written out in it are recognised.

        Args:
            add_special_tokens: begin (and end) as the model's plain prompts do. Chat templates do so themselves.
        """
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of the tokens; what is not UTF-8 becomes U+FFFD."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text

    def token(self, token_id: int) -> str | None:
        """The token as the vocabulary writes it; None if there is none of that id."""
        token: str | None = self._tokenizer.id_to_token(token_id)
        return token

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id


def _load(folder: Path) -> Any:
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # the library has no kind of its own
            raise CorruptWeights(f"{path} cannot be read: {error}") from error
    # An old format: converting it needs a library that is slow to import, so not at the top of the file.
    auto = importlib.import_module("transformers").AutoTokenizer
    try:
        return auto.from_pretrained(folder, local_files_only=True).backend_tokenizer
    except (OSError, ValueError, AttributeError, ImportError) as error:
        old = next((name for name in ("tokenizer.model", "spiece.model") if (folder / name).is_file()), None)
        there = f"{old} is there, which takes the packages 'sentencepiece' and 'protobuf' to read. " if old else ""
        raise ModelNotFound(
            f"{folder} has no tokenizer that can be read: looked for tokenizer.json. {there}"
            'Put one there, or say in hemiola.json whose it uses: {"tokenizer": {"shares": MODEL}}.'
        ) from error
