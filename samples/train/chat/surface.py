"""How people type: case, punctuation, quotes, typos, short forms. Filled-in values keep their letters.

Texts come as pieces (see grammar.pieces). What they mean is not known here.
"""

from itertools import pairwise
from random import Random

from samples.train.chat.grammar import Slot

DROPPED = ("the", "a", "an")
"""Words that some writers leave out."""
SHORTENED = {
    "you": ("u",), "your": ("ur",), "are": ("r",), "please": ("pls", "plz"), "thanks": ("thx",), "tomorrow": ("tmrw",),
    "because": ("cuz",), "know": ("kno",), "what": ("wat",), "though": ("tho",), "with": ("w",), "something": ("smth",),
    "and": ("n",), "people": ("ppl",), "before": ("b4",), "right": ("rite",), "message": ("msg",),
}  # fmt: skip
"""Words that hasty writers shorten."""
_QUOTES = (
    '"{}"', '"{}"', '"{}"', "'{}'", "'{}'", "“{}”", "‘{}’", "«{}»", "`{}`", "*{}*", "**{}**", "[{}]", "<{}>", "_{}_", "„{}“", "({})", "''{}''",
)  # fmt: skip
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBOURS = {a: b for row in _ROWS for a, b in pairwise(row)}


def quoted(rng: Random, text: str) -> str:
    """The text in some quotation marks."""
    return rng.choice(_QUOTES).format(text)


def typo(rng: Random, word: str) -> str:
    """The word with two letters swapped, one left out, doubled or replaced by its neighbour on the keyboard."""
    at = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + _NEIGHBOURS.get(word[at], word[at]) + word[at + 1 :]


def _with_typos(rng: Random, text: str) -> str:
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    for i in rng.sample(long, min(len(long), rng.choice((1, 1, 2)))):
        words[i] = typo(rng, words[i])
    return " ".join(words)


def _hasty(rng: Random, text: str) -> str:
    words = text.lower().replace("'", "").split(" ")
    short = [rng.choice(SHORTENED[word]) if word in SHORTENED and rng.random() < 0.6 else word for word in words]
    return " ".join(short)


def _without_articles(text: str) -> str:
    return " ".join(word for word in text.split(" ") if word.lower() not in DROPPED)


def roughen(rng: Random, pieces: list[str], is_noisy: bool = True) -> str:
    """The pieces as one text in one of many typing styles; neat ones are the most frequent."""
    runs: list[str] = []
    for piece in pieces:
        if runs and not isinstance(piece, Slot) and not isinstance(runs[-1], Slot):
            runs[-1] += piece
        else:
            runs.append(piece)
    roll = rng.random() if is_noisy else 0.0
    ends_open = False
    if roll < 0.42:
        if not isinstance(runs[0], Slot):
            runs[0] = _sentences(runs[0])
    elif roll < 0.60:
        ends_open = rng.random() < 0.4
    elif roll < 0.82:
        runs = [run if isinstance(run, Slot) else run.lower() for run in runs]
        ends_open = rng.random() < 0.6
    elif roll < 0.88:
        runs = [run if isinstance(run, Slot) else _hasty(rng, run) for run in runs]
        ends_open = rng.random() < 0.8
    elif roll < 0.93:
        runs = [run if isinstance(run, Slot) else _with_typos(rng, run) for run in runs]
    elif roll < 0.96:
        runs = [run if isinstance(run, Slot) else _without_articles(run) for run in runs]
    elif roll < 0.97:
        runs = [run if isinstance(run, Slot) else run.upper() for run in runs]
    elif not isinstance(runs[-1], Slot) and runs[-1][-1:] in "?!.":
        runs[-1] = runs[-1][:-1] + rng.choice(("!!", "??", "...", "?!", " ?", " !", "!!!"))
    if ends_open and not isinstance(runs[-1], Slot):
        runs[-1] = runs[-1].rstrip(".?! ") or runs[-1]
    return "".join(runs).strip()


def _sentences(text: str) -> str:
    """Capital letters at the start, and after the ends of sentences."""
    parts = text.split(". ")
    return ". ".join(part[:1].upper() + part[1:] for part in parts)
