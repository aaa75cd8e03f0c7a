"""The world as training draws it: hand-written wordings, many ways of typing, words made of the tokenizer's pieces."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from samples.train.chat.grammar import Slot
from samples.train.chat.phrasebook import Book, load_book
from samples.train.chat.surface import quoted, roughen
from samples.train.chat.world import SYLLABLES, World, split

BOOK_SHARE = 0.76
"""How many requests are worded by the book; the others by the small grammars beside the abilities."""
_QUOTED = {
    **dict.fromkeys("spell reverse upper lower first last length define opposite to_emoji".split(), "q"),
    **dict.fromkeys("qa_colour qa_object qa_background canonical caption_json".split(), "q"),
    **dict.fromkeys(("count_words", "repeat"), "s"),
}
_KEPT_POOLS = ("word", "first", "last", "city", "job", "product", "food", "counted")
_LISTED = ("sort", "count_items", "words_json")
_SEPARATORS = (", ",) * 9 + ("; ", " ", " / ", "\n", "\n", "\n- ", "\n* ", "\n1", ",", " and ", " and ")
_EDGES_BEFORE, _EDGES_AFTER = (": ", "\n", "- ", "> ", "| "), ("\n", ":", " -", ".", ";", " →", " =", " >")


@cache
def word_pieces() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokenizer's lower-case tokens that start a word, and those that go on in one."""
    text = Path(__file__).with_name("tokenizer.json").read_text(encoding="utf-8")
    tokens = [token for token in json.loads(text)["model"]["vocab"] if token.lstrip("Ġ").isascii()]
    starts = [token[1:] for token in tokens if token[0] == "Ġ" and token[1:].isalpha() and token[1:].islower()]
    inner = [token for token in tokens if token.isalpha() and token.islower()]
    return tuple(t for t in starts if 2 <= len(t) <= 12), tuple(t for t in inner if 2 <= len(t) <= 6)


@cache
def kept_words() -> frozenset[str]:
    """The words and names of the evaluation, in small letters."""
    return frozenset(word.lower() for pool in _KEPT_POOLS for word in split(pool, True))


@dataclass
class TrainingWorld(World):
    """A World with a book of wordings and more made-up words."""

    is_training = True
    book: Book = field(default_factory=load_book)

    def ask(self, key: str, **slots: str) -> str:
        if key not in self.book.sections or not self.chance(BOOK_SHARE):
            return super().ask(key, **slots)
        return self.ask_book(key, slots)

    def ask_book(self, key: str, slots: dict[str, str]) -> str:
        """A wording of the book, with other quotes around words and other separators in lists."""
        quotable = _QUOTED.get(key, "")
        if quotable:
            slots = {**slots, quotable: slots[quotable].strip("\"'")}
        if key in _LISTED:
            listed = relisted(self.rng, slots["l"].split(", "))
            is_like_text = key == "count_items" and not set(listed) & set(",;/\n")
            slots = {**slots, "l": slots["l"] if is_like_text else listed}
        pieces = self.book.ask(self.rng, key, slots, self.noisy)
        if quotable:
            pieces = requoted(self.rng, pieces, slots[quotable])
        return roughen(self.rng, pieces, self.noisy)

    def pick(self, pool: str) -> str:
        if pool in ("n", "word", "common") and self.chance(0.12):
            return self.invented()
        if pool in ("first", "last") and self.chance(0.06):
            return self.invented().capitalize()
        if pool in ("food", "product", "job", "city") and self.chance(0.14):
            return self.invented().capitalize() if pool == "city" else self.invented()
        return super().pick(pool)

    def sample(self, pool: str, count: int) -> list[str]:
        found = super().sample(pool, count)
        if pool in ("n", "word", "common"):
            return list(dict.fromkeys(self.invented() if self.chance(0.2) else word for word in found))
        return found

    def invented(self) -> str:
        """A made-up word, none of the ones that are kept for the evaluation."""
        while True:
            word = self._made_up()
            if word not in kept_words():
                return word

    def _made_up(self) -> str:
        """Syllables, a piece of the vocabulary with another piece, or a few letters.

        So the letters of every token can be learnt; a piece may well be a word that is kept for the evaluation.
        """
        rng, roll = self.rng, self.rng.random()
        if roll < 0.3:
            return super().invented()
        starts, inner = word_pieces()
        if roll < 0.7:
            return rng.choice(starts) + rng.choice(SYLLABLES)
        if roll < 0.85:
            return rng.choice(SYLLABLES) + rng.choice(inner)
        if roll < 0.93:
            return rng.choice(starts) + rng.choice(inner)
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 6)))

    def word(self) -> str:
        return self.invented() if self.chance(0.3) else self.rng.choice(split("word", self.held_out))

    def phrase(self) -> str:
        return " ".join(self.sample("common", self.rng.choice((1, 2, 2, 3, 3, 4, 5))))


def relisted(rng: Random, items: list[str]) -> str:
    """The items with some separator; lines start with a new line."""
    separator = rng.choice(_SEPARATORS)
    if separator == "\n1":
        return "\n" + "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)) + "\n"
    if separator.startswith("\n"):
        return separator + separator.join(items) + "\n"
    if separator == " and " and len(items) > 1:
        return ", ".join(items[:-1]) + rng.choice((" and ", ", and ")) + items[-1]
    return separator.join(items)


def requoted(rng: Random, pieces: list[str], value: str) -> list[str]:
    """Quotes around the value: always where its end would be unclear, at random elsewhere."""
    found = []
    is_short = " " not in value
    for i, piece in enumerate(pieces):
        if isinstance(piece, Slot) and piece == value:
            before = "".join(pieces[max(0, i - 2) : i])[-2:]
            after = "".join(pieces[i + 1 : i + 3])[:2]
            is_enclosed = before[-1:] in "\"'`<(«“" and bool(before.strip())
            is_clear = is_short or (_is_edge(before, _EDGES_BEFORE) and (not after or after.startswith(_EDGES_AFTER)))
            if not is_enclosed and not (is_clear and rng.random() < 0.55):
                piece = Slot(quoted(rng, value))
        found.append(piece)
    return found


def _is_edge(before: str, edges: Iterable[str]) -> bool:
    return not before or before.endswith(tuple(edges))
