"""Hand-written wordings for training, read from ``wordings/*.txt``, and the frames around them.

A file holds sections ``== KEY KIND [; DATA [; NOUNS]]`` of one wording a line, in the language of `grammar`. The kind says
which frames fit: `do` (write ...), `the` (the opposite of ...), `a` (a joke ...), `how` (how to spell ...), `ask` (a question),
`label` (short names of a task, beside the data), `it` (spell it, or what does it mean, beside the data), `say` (whole texts).
A share of the lines, chosen by a hash, can be kept from training and asked for alone: wordings that are new to the model.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from samples.train.chat.grammar import Sequence, parse, pieces
from samples.train.chat.kept_out import is_kept_out
from samples.train.chat.rewording import reworded

FOLDER = Path(__file__).with_name("wordings")
KINDS = ("do", "the", "a", "how", "ask", "label", "it", "itq", "say")
BARE = {"do": 0.25, "ask": 0.4, "say": 1.0}
"""How often a wording stands without a frame."""
DEV_PERCENT = 15
CHATTER_BEFORE, CHATTER_AFTER = 0.09, 0.07
_OPENING = parse("{B}(|.|.|!)", False), parse("{B}(?|?|?||??)", False), parse("{B}", False)


def dev_lines(lines: Iterable[str]) -> set[str]:
    """The lines of one key that are kept from a training with ``--dev-wordings``: the lowest hashes, at least one."""
    ordered = sorted(lines, key=lambda line: zlib.crc32(line.encode()))
    return set(ordered[: max(1, round(len(ordered) * DEV_PERCENT / 100))])


@dataclass
class Section:
    """Wordings of one kind; `data` and `nouns` fill @ and ~ of the frames."""

    kind: str
    data: list[Sequence]
    nouns: list[str]
    bodies: list[list[Sequence]] = field(default_factory=list)


@dataclass(frozen=True)
class Book:
    """Sections by key, frames by kind, and what people say around a request."""

    sections: dict[str, list[Section]]
    frames: dict[str, list[list[Sequence]]]
    before: list[Sequence]
    after: list[Sequence]
    strangers: tuple[str, ...] = ()
    """Words to put in the place of a wording's own; with none of them no wording is changed (see rewording)."""

    def ask(self, rng: Random, key: str, slots: dict[str, str], is_noisy: bool) -> list[str]:
        """A random text for `key`, in pieces; never worded as one of the evaluation."""
        while True:
            found = self._ask(rng, key, slots, is_noisy)
            if self.strangers:
                found = reworded(rng, found, self.strangers)
            if not is_kept_out(found):
                return found

    def _ask(self, rng: Random, key: str, slots: dict[str, str], is_noisy: bool) -> list[str]:
        sections = self.sections[key]
        section = rng.choices(sections, [len(section.bodies) for section in sections])[0]
        frame = self._frame(rng, section.kind)
        noun = rng.choice(section.nouns)
        nested: dict[str, list[Sequence]] = {"B": rng.choice(section.bodies), "D": section.data, "N": [[noun]]}
        out: list[str] = []
        if is_noisy and section.kind != "say" and rng.random() < CHATTER_BEFORE:
            pieces(rng, rng.choice(self.before), {}, {}, out)
            out.append(rng.choice((". ", ". ", "! ", "... ", ", ", "\n", " - ")))
        pieces(rng, frame, slots, nested, out)
        if is_noisy and rng.random() < CHATTER_AFTER and out[-1][-1:] in (".", "?", "!", '"'):
            out.append(" ")
            pieces(rng, rng.choice(self.after), {}, {}, out)
            out.append(rng.choice((".", ".", "!", "")))
        return [piece for piece in out if piece]

    def instruction(self, rng: Random, key: str) -> list[str]:
        """What to do with the data that later messages bring, as a system text says it; in pieces."""
        section = rng.choice([section for section in self.sections[key] if section.kind in ("it", "itq")])
        nested: dict[str, list[Sequence]] = {"B": rng.choice(section.bodies), "N": [[rng.choice(section.nouns)]]}
        out: list[str] = []
        pieces(rng, rng.choice(rng.choice(self.frames["sys"])), {}, nested, out)
        return out

    def _frame(self, rng: Random, kind: str) -> Sequence:
        if rng.random() < BARE.get(kind, 0.0):
            return rng.choice(_OPENING[("do", "ask", "say").index(kind)])
        return rng.choice(rng.choice(self.frames[kind]))


def _lines() -> Iterable[tuple[str, str]]:
    """(header, line) of all files."""
    for path in sorted(FOLDER.glob("*.txt")):
        header = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                header = line[3:]
            elif line.strip() and not line.startswith("# "):
                assert header, f"{path}: a wording before the first header"
                yield header, line.replace("\\n", "\n")


def _frame_of(line: str) -> list[Sequence]:
    return parse(line.replace("…", "{B}").replace("@", "{D}").replace("~", "{N}"), False)


@cache
def load_book(part: str = "all") -> Book:
    """All wordings, those of training without the dev ones (`train`), or only the dev ones (`dev`), in all frames."""
    assert part in ("all", "train", "dev"), part
    by_key: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for header, line in _lines():
        by_key[header.split(" ", 1)[0]].append((header, line))
    sections: dict[str, dict[str, Section]] = defaultdict(dict)
    frames: dict[str, list[list[Sequence]]] = defaultdict(list)
    chatter: dict[str, list[Sequence]] = defaultdict(list)
    for key, found in by_key.items():
        kept = dev_lines(line for _, line in found)
        for header, line in found:
            kind = header.split(" ; ")[0].split()[1]
            if key == "chatter":
                chatter[kind] += parse(line, False)
            elif key == "frame":
                if part != "train" or line not in kept:
                    frames[kind].append(_frame_of(line))
            elif part == "all" or (line in kept) == (part == "dev"):
                _add(sections[key], header, kind, line)
    books = {key: list(found.values()) for key, found in sections.items()}
    return Book(books, frames, chatter["before"], chatter["after"])


def _add(sections: dict[str, Section], header: str, kind: str, line: str) -> None:
    assert kind in KINDS, header
    if kind == "it" and line.lstrip("(").startswith(("what", "which", "how", "it ")):
        kind = "itq"
    data, nouns = [*header.split(" ; ")[1:], "", ""][:2]
    section = Section(kind, parse(data, False), nouns.split("|") if nouns else ["text"])
    sections.setdefault(header + kind, section).bodies.append(parse(line, False))


def num_shapes(options: Iterable[Sequence], nested: dict[str, int] | None = None) -> int:
    """How many different texts the options have, slots left open. `nested` gives the number of texts of some slots."""
    total = 0
    for sequence in options:
        product = 1
        for node in sequence:
            if not isinstance(node, str) and node[0] == "choice":
                assert isinstance(node[1], list)
                product *= num_shapes(node[1], nested)
            elif not isinstance(node, str) and nested:
                product *= nested.get(str(node[1]), 1)
        total += product
    return total
