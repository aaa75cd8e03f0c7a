"""The video model's own T5 tokenizer: every word of the captions is one piece, any other word falls back to letters.

A unigram tokenizer trained the usual way prunes rare words and cuts names in pieces. The captions come from a closed
vocabulary, so the words themselves are the vocabulary, in both cases of the first letter (T5Tokenizer has no
lower-casing of its own), with log frequencies as scores.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

import torch
from torch import Tensor
from transformers import T5Tokenizer, UMT5EncoderModel

from samples.train.scenes.captions import caption
from samples.train.scenes.sampling import sample_clip
from samples.train.video.models import TEXT_SLOTS

_SPACE = "▁"
_MARKS = ",.!?-'"
_LETTER_SCORE = -20.0  # far below any word, so that known words are never spelt


def caption_words(captions: int = 60_000, seed: int = 0) -> Counter[str]:
    """How often each word (split at spaces and punctuation) occurs in random captions, lower-cased."""
    rng, words = Random(seed), Counter[str]()
    for _ in range(captions):
        words.update(_split(caption(rng, sample_clip(rng)).lower()))
    return words


def _split(text: str) -> Iterable[str]:
    for mark in _MARKS:
        text = text.replace(mark, f" {mark} " if mark not in "-'" else mark)
    return (word for word in text.split() if word not in _MARKS)


def build_tokenizer(words: Mapping[str, int]) -> T5Tokenizer:
    """Pieces: </s> and friends, punctuation, words (plain and capitalised), letters."""
    total = sum(words.values())
    scores = {"<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, _SPACE: -8.0}
    scores |= {mark: -4.0 for mark in _MARKS}
    for word, count in sorted(words.items()):
        score = math.log(count / total)
        scores[_SPACE + word] = score
        scores.setdefault(_SPACE + word[0].upper() + word[1:], score - 1)
    for letter in string.ascii_letters + string.digits:
        scores.setdefault(letter, _LETTER_SCORE)
    return T5Tokenizer(vocab=list(scores.items()), extra_ids=0, model_max_length=512)


@torch.no_grad()
def silence_letters(tokenizer: T5Tokenizer, encoder: UMT5EncoderModel) -> None:
    """Zero the embeddings of the pieces that no caption uses, so that an unknown word says nothing instead of noise."""
    pieces = tokenizer.get_vocab()
    silent = [
        index for piece, index in pieces.items() if piece in ("<unk>", _SPACE) or (len(piece) == 1 and piece.isalnum())
    ]
    encoder.shared.weight[silent] = 0.0


def encode(tokenizer: T5Tokenizer, captions: list[str]) -> tuple[Tensor, Tensor]:
    """(ids [N, TEXT_SLOTS] int16, lengths [N] int16). Longer captions, one in tens of thousands, are cut."""
    rows = tokenizer(captions, padding=False, truncation=True, max_length=TEXT_SLOTS)["input_ids"]
    ids = torch.zeros(len(rows), TEXT_SLOTS, dtype=torch.int16)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row, dtype=torch.int16)
    return ids, torch.tensor([len(row) for row in rows], dtype=torch.int16)
