"""Reduce public word sources to the small committed files that the chat data generator reads.

Run once, when the sources change: ``python -m samples.train.chat.prepare WORDNET_DIR EMOJI_JSON NAMES_DIR BLOCKED_JSON``.
WORDNET_DIR is the folder with data.noun and cntlist.rev of WordNet 3.0, EMOJI_JSON the ``en/data.json`` of
emojibase-data, NAMES_DIR the package folder of ``names``, BLOCKED_JSON a list of words that nobody should be taught to
say (``en.json`` of the npm package naughty-words). Training itself never needs them. Read what comes out before it is
committed: no list is complete.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
NUM_DEFINITIONS = 1800
NUM_EMOJI = 700
POS_NAMES = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}
UNFIT = re.compile(
    r"sex|genital|drug|kill|murder|slave|nazi|race|racial|vulgar|slang|obscen|offens|excre|urin|fec|penis|breast|naked|nude|"
    r"suicid|terror|rape|whore|prostitut|jew|negro|ethnic|disparag|derogat|damn|hell|corpse|torture|fuck|shit|ass\b|bitch|lesbian|homo|gay|anus|vagina|copulat|intercourse|semen|porn",
    re.IGNORECASE,
)


def first_clause(gloss: str) -> str:
    """The definition alone: no parentheses, no examples, no second clause."""
    text = re.sub(r"\([^)]*\)", "", gloss.split('"')[0])
    return re.sub(r"\s+", " ", text.split(";")[0]).strip(" :,.")


def read_synsets(folder: Path) -> dict[tuple[str, str], tuple[list[str], str, list[tuple[str, str, str]]]]:
    """(pos, offset) -> lemmas as written, gloss, antonym pointers (pos, offset, source/target)."""
    found = {}
    for name, pos in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (folder / f"data.{name}").read_text().splitlines():
            if line.startswith("  "):
                continue
            head, gloss = line.split(" | ", 1)
            fields = head.split()
            count = int(fields[3], 16)
            lemmas = [re.sub(r"\([a-z]+\)$", "", fields[4 + 2 * i]) for i in range(count)]
            rest = fields[4 + 2 * count :]
            pointers = [rest[1 + 4 * i : 5 + 4 * i] for i in range(int(rest[0]))]
            antonyms = [(p[2], p[1], p[3]) for p in pointers if p[0] == "!"]
            found[(pos, fields[0])] = (lemmas, gloss, antonyms)
    return found


def read_frequencies(folder: Path) -> dict[tuple[str, str], int]:
    """(lemma, pos) -> how often it was tagged in WordNet's corpora, over all senses."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for line in (folder / "cntlist.rev").read_text().splitlines():
        key, _, count = line.split()
        lemma, sense = key.split("%")
        pos = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}[sense[0]]
        counts[(lemma, pos)] += int(count)
    return counts


def first_senses(folder: Path) -> dict[tuple[str, str], str]:
    """(lemma, pos) -> offset of its most frequent sense."""
    senses = {}
    for name, pos in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (folder / f"index.{name}").read_text().splitlines():
            if not line.startswith("  "):
                fields = line.split()
                senses[(fields[0], pos)] = fields[6 + int(fields[3])]
    return senses


def write(name: str, lines: list[str], blocked: frozenset[str]) -> None:
    """Without lines one of whose fields is a blocked word."""
    lines = [line for line in lines if blocked.isdisjoint(line.lower().split("\t"))]
    (DATA / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(name, len(lines), (DATA / name).stat().st_size)


def prepare_wordnet(folder: Path, blocked: frozenset[str]) -> None:
    synsets, counts, senses = read_synsets(folder), read_frequencies(folder), first_senses(folder)
    definitions: dict[str, str] = {}
    words: dict[str, str] = {}
    for (lemma, pos), _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if (
            not re.fullmatch(r"[a-z]{3,11}", lemma)
            or lemma in words
            or UNFIT.search(lemma)
            or (lemma, pos) not in senses
        ):
            continue
        lemmas, gloss, _ = synsets[(pos, senses[(lemma, pos)])]
        if lemma not in lemmas:  # the indexes are lower-cased: this drops proper names
            continue
        words[lemma] = pos
        text = first_clause(gloss)
        good = 3 <= len(text.split()) <= 14 and len(text) <= 80 and not UNFIT.search(text) and lemma not in text
        if good and text.isascii() and len(definitions) < NUM_DEFINITIONS and len(lemma) > 3:
            definitions[lemma] = f"{lemma}\t{POS_NAMES[pos]}\t{text}"
    write("chat_definitions.tsv", sorted(definitions.values()), blocked)
    write("chat_words.tsv", [f"{word}\t{pos}" for word, pos in list(words.items())[:9000]], blocked)
    write("chat_antonyms.tsv", antonym_lines(synsets, counts, words), blocked)


def antonym_lines(
    synsets: dict[tuple[str, str], tuple[list[str], str, list[tuple[str, str, str]]]],
    counts: dict[tuple[str, str], int],
    words: dict[str, str],
) -> list[str]:
    """One antonym per word: the most frequent partner, simple words only."""
    best: dict[str, tuple[int, str]] = {}
    for (pos, _), (lemmas, _, antonyms) in synsets.items():
        for other_pos, offset, link in antonyms:
            source = lemmas[int(link[:2], 16) - 1]
            target = synsets[("a" if other_pos == "s" else other_pos, offset)][0][int(link[2:], 16) - 1]
            if source in words and target in words and counts[(source, pos)] >= 4 and counts[(target, pos)] >= 2:
                best[source] = max(best.get(source, (0, "")), (counts[(target, pos)], target))
    return sorted(f"{source}\t{target}" for source, (_, target) in best.items())


def prepare_emoji(path: Path, blocked: frozenset[str]) -> None:
    items = [e for e in json.loads(path.read_text(encoding="utf-8")) if e.get("group") in (0, 1, 3, 4, 5, 6, 7, 8)]
    lines = []
    for item in sorted(items, key=lambda e: e.get("order", 9999)):
        emoji = item["emoji"].replace("\ufe0f", "")
        label = item["label"].lower()
        if len(emoji) == 1 and re.fullmatch(r"[a-z' -]{3,20}", label) and not UNFIT.search(label):
            lines.append(f"{emoji}\t{label}")
    write("chat_emoji.tsv", lines[:NUM_EMOJI], blocked)


def prepare_names(folder: Path, blocked: frozenset[str]) -> None:
    def names(file: str, count: int) -> list[str]:
        found = [line.split()[0].capitalize() for line in (folder / file).read_text().splitlines()]
        return [name for name in found if len(name) > 2][:count]

    write(
        "chat_first_names.txt", sorted(set(names("dist.female.first", 1500) + names("dist.male.first", 900))), blocked
    )
    write("chat_surnames.txt", sorted(set(names("dist.all.last", 3000))), blocked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wordnet", type=Path)
    parser.add_argument("emoji", type=Path)
    parser.add_argument("names", type=Path)
    parser.add_argument("blocked", type=Path)
    args = parser.parse_args()
    blocked = frozenset(word.lower() for word in json.loads(args.blocked.read_text(encoding="utf-8")))
    prepare_wordnet(args.wordnet, blocked)
    prepare_emoji(args.emoji, blocked)
    prepare_names(args.names, blocked)


if __name__ == "__main__":
    main()
