"""A small language for wordings: ``(a|b|)`` chooses, ``{slot}`` is filled in, everything else is literal text.

Each pattern also compiles to a regular expression, so a test can prove that an evaluation wording is not one the
generator can produce. Frequent words of instructions are replaced by synonyms with a fixed probability. What the
wordings mean is not known here.
"""

import re
from collections.abc import Mapping
from functools import cache
from random import Random

Node = str | tuple[str, object]
Sequence = list[Node]

SYNONYMS: dict[str, tuple[str, ...]] = {
    "tell": ("tell", "tell", "tell", "inform"),
    "give": ("give", "give", "give", "hand", "get", "send"),
    "write": ("write", "write", "write", "compose", "produce", "draft"),
    "show": ("show", "show", "show", "print", "display"),
    "make": ("make", "make", "make", "create", "build", "prepare"),
    "find": ("find", "find", "find", "look up", "search for", "locate"),
    "answer": ("answer", "answer", "answer", "reply", "respond"),
    "say": ("say", "say", "say", "state"),
    "text": ("text", "text", "text", "passage", "message", "snippet"),
    "word": ("word", "word", "word", "term"),
    "sentence": ("sentence", "sentence", "sentence", "line", "text"),
    "short": ("short", "short", "short", "brief", "little", "tiny"),
    "picture": ("picture", "picture", "image", "drawing"),
    "following": ("following", "following", "next", "below"),
    "need": ("need", "need", "need", "require", "want"),
    "only": ("only", "only", "only", "just", "nothing but"),
    "calculate": ("calculate", "calculate", "compute", "work out", "figure out"),
    "please": ("please", "please", "please", "kindly"),
    "many": ("many", "many", "many"),
}
"""Word -> weighted choice; repeated entries are weights."""

PLACEHOLDER = "zq"
"""Start of the words that stand for slots when texts are matched."""
_ESCAPES = str.maketrans("⟨⟩⟦⟧¦", "(){}|")
"""Characters that stand in patterns for the ones with a meaning."""


class Slot(str):
    """A piece of text that was filled in, not a wording."""

    __slots__ = ()


def _literal(text: str, has_synonyms: bool) -> Sequence:
    """Literal text with its replaceable words turned into choices."""
    text = text.translate(_ESCAPES)
    if not has_synonyms:
        return [text] if text else []
    nodes: Sequence = []
    for piece in re.split(r"\b([a-z]+)\b", text):
        options = SYNONYMS.get(piece)
        nodes.append(("choice", [[option] for option in options]) if options else piece)
    return [node for node in nodes if node]


def _parse(pattern: str, at: int, depth: int, has_synonyms: bool) -> tuple[list[Sequence], int]:
    options: list[Sequence] = [[]]
    literal = ""
    while at < len(pattern):
        char = pattern[at]
        if char in "({|)":
            options[-1] += _literal(literal, has_synonyms)
            literal = ""
        if char == "(":
            inner, at = _parse(pattern, at + 1, depth + 1, has_synonyms)
            options[-1].append(("choice", inner))
        elif char == "{":
            end = pattern.index("}", at)
            options[-1].append(("slot", pattern[at + 1 : end]))
            at = end
        elif char == "|":
            options.append([])
        elif char == ")":
            assert depth > 0, f"unbalanced: {pattern}"
            return options, at
        else:
            literal += char
        at += 1
    assert depth == 0, f"unbalanced: {pattern}"
    options[-1] += _literal(literal, has_synonyms)
    return options, at


@cache
def parse(pattern: str, has_synonyms: bool = True) -> list[Sequence]:
    """The pattern's alternatives; top-level ``|`` separates whole wordings."""
    return _parse(pattern, 0, 0, has_synonyms)[0]


def expand(rng: Random, pattern: str, slots: dict[str, str]) -> str:
    """One random text of the pattern."""
    out: list[str] = []
    _expand(rng, rng.choice(parse(pattern)), slots, out)
    return "".join(out)


def _expand(rng: Random, sequence: Sequence, slots: dict[str, str], out: list[str]) -> None:
    for node in sequence:
        if isinstance(node, str):
            out.append(node)
        elif node[0] == "slot":
            out.append(slots[str(node[1])])
        else:
            options = node[1]
            assert isinstance(options, list)
            _expand(rng, rng.choice(options), slots, out)


def pieces(
    rng: Random, sequence: Sequence, slots: Mapping[str, str], nested: Mapping[str, list[Sequence]], out: list[str]
) -> None:
    """Append one random text in pieces: literals, and a `Slot` where one was filled in. `nested` slots are patterns."""
    for node in sequence:
        if isinstance(node, str):
            out.append(node)
            continue
        kind, value = node
        if kind == "choice":
            assert isinstance(value, list)
            pieces(rng, rng.choice(value), slots, nested, out)
        elif value in nested:
            pieces(rng, rng.choice(nested[str(value)]), slots, nested, out)
        else:
            out.append(Slot(slots[str(value)]))


def normalise(text: str) -> str:
    """Lower case without punctuation, so that surface noise does not hide an equal wording."""
    return " ".join(re.sub(r"[^\w\s{}]", " ", text.lower().replace("'", "")).split())


def _regex(sequence: Sequence) -> str:
    parts = []
    for node in sequence:
        if isinstance(node, str):
            clean = re.sub(r"[^\w\s]", " ", node.lower().replace("'", ""))
            parts.append(re.sub(r"\s+", r"\\s+", re.sub(r"([^\w\s])", r"\\\1", clean)) if clean.strip() else r"\s*")
        elif node[0] == "slot":
            parts.append(rf"\s*{PLACEHOLDER}\w+\s*")
        else:
            options = node[1]
            assert isinstance(options, list)
            parts.append("(?:" + "|".join(_regex(option) for option in options) + ")")
    return "".join(parts)


@cache
def matcher(pattern: str) -> re.Pattern[str]:
    """Accepts (at least) every normalised text that `expand` can produce with placeholders in the slots, and `noise`."""
    body = "|".join(_regex(option) for option in parse(pattern))
    body = body.replace(r"\s+", r"\s*")
    return re.compile(rf"(?:{_regex_of_noise(PREFIXES + CONTEXTS)})?\s*(?:{body})\s*(?:{_regex_of_noise(SUFFIXES)})?")


def _regex_of_noise(texts: tuple[str, ...]) -> str:
    return "|".join(re.escape(normalise(text)) for text in texts if text.strip())


PREFIXES = (
    "hey, ", "hi, ", "hello, ", "hi! ", "ok, ", "okay, ", "so, ", "well, ", "please ", "please, ", "now ", "now, ",
    "quick question: ", "question: ", "one more thing: ", "next: ", "next, ", "also, ", "and ", "alright, ",
    "can you help? ", "i have a request: ", "task: ", "good morning! ", "dear model, ", "let us try this: ",
    "just ", "great. ", "thanks. ", "hm, ", "uh, ", "for me: ", "listen, ", "could you help me? ",
)  # fmt: skip
SUFFIXES = (
    " please", ", please", " thanks", ", thanks", " thank you", " for me", " now", " if you can", " quickly", " ok?",
    " right now", " today", " thx", ", thank you!", " when you can", " if possible", ", will you?", " :)", " asap",
)  # fmt: skip

CONTEXTS = tuple(
    f"{opening} {thing}. "
    for opening in (
        "I am writing", "my friend works on", "we are preparing", "my class needs help with", "I am stuck with",
        "my daughter is busy with", "today I finish", "our team makes", "yesterday I began", "I'm learning for",
        "my boss wants to see", "somebody asked me about", "soon I have to hand in", "I have fun with",
    )
    for thing in (
        "a report", "a letter", "a game", "the homework", "a quiz", "a presentation", "a small project", "a website",
        "a test", "an article", "a birthday card", "the plan", "a puzzle", "a web shop", "a children's book", "a speech",
    )
)  # fmt: skip
"""Sentences that have nothing to do with the request after them."""


def noise(rng: Random, text: str) -> str:
    """Greetings and politeness around a wording, another case for its first letter, other closing punctuation."""
    roll = rng.random()
    if roll < 0.14:
        text = rng.choice(PREFIXES) + text
    elif roll < 0.21:
        text = rng.choice(CONTEXTS) + text[:1].upper() + text[1:]
    elif roll < 0.29 and text[-1:] in "?.!" and "\n" not in text:
        text = text[:-1] + rng.choice(SUFFIXES) + rng.choice((text[-1], ""))
    roll = rng.random()
    if roll < 0.45:
        text = text[:1].upper() + text[1:]
    if text[-1:] in ".?!" and rng.random() < 0.2:
        text = text[:-1]
    if rng.random() < 0.01:
        text = text.replace(" ", "  ", 1)
    return text
