"""Other words in the wordings of training: synonyms from ``wordings/thesaurus.groups``, and words nobody knows.

The model learns English from its wordings alone, so a request with a word that no wording has is beyond it. Synonyms
widen the vocabulary in all wordings at once; a strange word here and there teaches to go by the rest of the request.
Only the wording's own words are touched, never what was filled in.
"""

import re
from functools import cache
from pathlib import Path
from random import Random

from samples.train.chat.grammar import Slot

FILE = Path(__file__).with_name("wordings") / "thesaurus.groups"
SYNONYM_SHARE, SYNONYMS_PER_WORD = 0.4, 0.3
STRANGE_SHARE, MIN_WORDS_WITH_STRANGE = 0.08, 6
_WORD = re.compile(r"(?<![\w'⟨])[A-Za-z]+(?![\w'])")


@cache
def thesaurus() -> dict[str, tuple[str, ...]]:
    """Word -> what can stand in its place; only single words are looked up."""
    found: dict[str, dict[str, None]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        head, arrow, rest = line.partition(" > ")
        members = (rest if arrow else line).split(" / ")
        for word in (head,) if arrow else members:
            if word.isalpha():
                found.setdefault(word, {}).update(dict.fromkeys(m for m in members if m != word))
    return {word: tuple(others) for word, others in found.items()}


def reworded(rng: Random, pieces: list[str], strangers: tuple[str, ...]) -> list[str]:
    """The pieces with some words replaced by synonyms and, rarely, one word left out or replaced by a stranger."""
    has_synonyms, has_stranger = rng.random() < SYNONYM_SHARE, rng.random() < STRANGE_SHARE
    if has_synonyms or has_stranger:
        pieces = joined(pieces)
    if has_synonyms:
        pieces = [piece if isinstance(piece, Slot) else _with_synonyms(rng, piece) for piece in pieces]
    if has_stranger:
        pieces = _with_stranger(rng, pieces, strangers)
    return pieces


def joined(pieces: list[str]) -> list[str]:
    """The pieces with neighbouring literals as one, so that words put together from several are whole."""
    found: list[str] = []
    for piece in pieces:
        if found and not isinstance(piece, Slot) and not isinstance(found[-1], Slot):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def _with_synonyms(rng: Random, text: str) -> str:
    known = thesaurus()

    def replaced(match: re.Match[str]) -> str:
        word = match[0]
        options = known.get(word.lower())
        if not options or rng.random() >= SYNONYMS_PER_WORD:
            return word
        other = rng.choice(options)
        return other[0].upper() + other[1:] if word[0].isupper() else other

    return _WORD.sub(replaced, text)


def _with_stranger(rng: Random, pieces: list[str], strangers: tuple[str, ...]) -> list[str]:
    places = [
        (i, match) for i, piece in enumerate(pieces) if not isinstance(piece, Slot) for match in _WORD.finditer(piece)
    ]
    if len(places) < MIN_WORDS_WITH_STRANGE:
        return pieces
    i, match = rng.choice(places)
    piece = pieces[i]
    word = rng.choice(strangers) if rng.random() < 0.75 else ""
    changed = piece[: match.start()] + word + piece[match.end() :]
    return [*pieces[:i], changed if word else changed.replace("  ", " "), *pieces[i + 1 :]]
