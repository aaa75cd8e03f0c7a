"""The evaluation of the chat model is fair: its wordings and words are none of the training generator's."""

import re
from dataclasses import replace
from hashlib import sha256
from random import Random
from unittest.mock import patch

import pytest

from samples.train.chat.abilities.families import FAMILIES
from samples.train.chat.conversations import ABILITIES, WORDINGS
from samples.train.chat.evaluation.build import FILE, cases
from samples.train.chat.evaluation.run import load_cases
from samples.train.chat.evaluation.wordings import UNSEEN, UNSEEN_TOOLS
from samples.train.chat.grammar import PLACEHOLDER, Slot, expand, matcher, noise, normalise, pieces
from samples.train.chat.kept_out import digest, digests, is_kept_out
from samples.train.chat.mixture import TRAINED, training_world
from samples.train.chat.phrasebook import BARE, DEV_PERCENT, KINDS, Book, load_book
from samples.train.chat.prepare import DATA
from samples.train.chat.surface import roughen
from samples.train.chat.world import World, is_held_out, split

SLOTS = {s: f"{PLACEHOLDER}{s}" for s in "q e a b c d f g j k l m n o p r s t v x 0 1 2 he thing verb".split()}


def test_a_grammars_matcher_accepts_what_the_grammar_produces() -> None:
    rng = Random(3)
    for key, patterns in WORDINGS.items():
        for pattern in patterns:
            for _ in range(4):
                text = noise(rng, expand(rng, pattern, SLOTS))
                assert matcher(pattern).fullmatch(normalise(text)), (key, pattern, text)


@pytest.mark.parametrize("key", sorted(UNSEEN))
def test_no_grammar_produces_an_evaluation_wording(key: str) -> None:
    assert len(UNSEEN[key]) >= 5
    for text in UNSEEN[key]:
        for slot, value in SLOTS.items():
            text = text.replace("{" + slot + "}", value)
        assert "{" not in text, text
        plain = normalise(text)
        for pattern in WORDINGS[key]:
            assert not matcher(pattern).fullmatch(plain), (text, pattern)


@pytest.mark.parametrize("key", sorted(UNSEEN))
def test_every_evaluation_wording_is_kept_out_of_the_book(key: str) -> None:
    assert all(digest(text) in digests() for text in UNSEEN[key])


def test_the_book_never_words_a_request_as_the_evaluation_does() -> None:
    """A wording that is kept out is drawn again, typed in any way, with or without words around it."""
    book = load_book()
    section = book.sections["spell"][0]
    kept = "Spell out the word {q} letter by letter"
    small = Book({"spell": [replace(section, kind="say", bodies=[_options(kept), _options("other {q}")])]}, {}, [], [])
    assert digest(kept) == digest('spell OUT word "{x}", letter by letter!!')
    assert digest(kept) != digest("spell out the word letter by letter")
    rng, seen = Random(1), set()
    with patch("samples.train.chat.kept_out.digests", lambda: frozenset({digest(kept)})):
        for _ in range(60):
            found = small.ask(rng, "spell", {"q": "cat"}, is_noisy=True)
            assert not is_kept_out(found)
            seen.add("".join(found))
    assert seen == {"other cat"}


def _options(text: str) -> list[list[str | tuple[str, object]]]:
    return [[text.split("{q}")[0], ("slot", "q"), text.split("{q}")[1]]]


def test_typing_keeps_what_was_filled_in() -> None:
    rng = Random(2)
    for _ in range(400):
        text = roughen(rng, ["please write ", Slot("mIxEd the Case"), " in the capitals, thank you."])
        assert "mIxEd the Case" in text


def test_every_key_has_wordings_in_the_book_and_some_are_for_development() -> None:
    whole, train, dev = load_book("all"), load_book("train"), load_book("dev")
    assert set(whole.sections) == set(train.sections) == set(dev.sections) == set(WORDINGS)
    for key, sections in whole.sections.items():
        count = sum(len(section.bodies) for section in sections)
        kept = sum(len(section.bodies) for section in dev.sections[key])
        assert kept == max(1, round(count * DEV_PERCENT / 100)), key
        assert count == kept + sum(len(section.bodies) for section in train.sections[key])


def test_every_kind_of_wording_has_frames() -> None:
    book = load_book()
    assert all(book.frames[kind] for kind in KINDS if BARE.get(kind, 0) < 1)


def test_every_pattern_of_the_book_can_be_filled() -> None:
    """Regression for misspelt slots: each body and frame is expanded with the slots of its key."""
    rng, book = Random(6), load_book()
    slots = {key: set(re.findall(r"{(\w+)}", " ".join(WORDINGS[key]))) for key in WORDINGS}
    for key, sections in book.sections.items():
        filled = dict.fromkeys(slots[key] | ({"n", "verb", "thing"} if key.startswith("reading_") else set()), "x")
        for section in sections:
            for body in section.bodies:
                for option in body:
                    for _ in range(6):
                        pieces(rng, option, filled, {}, [])


def test_training_draws_no_word_that_is_kept_for_the_evaluation() -> None:
    world = training_world(3)
    for pool in ("n", "word", "common", "first", "last", "city", "job", "product", "food", "counted"):
        kept = set(split(pool, True))
        assert not kept & {world.pick(pool) for _ in range(400)} - {world.invented()}
        assert not kept & set(world.sample(pool, 3))
    assert set(ABILITIES) <= set(TRAINED)


def test_the_evaluations_tools_have_names_that_no_trained_family_has() -> None:
    trained = {name for family in FAMILIES for name in family.names}
    assert len(UNSEEN_TOOLS) >= 20
    assert not trained & {name for family in UNSEEN_TOOLS for name in family.names}


def test_the_words_of_training_and_evaluation_are_disjoint() -> None:
    for pool in ("n", "v", "a", "word", "common", "first", "last", "city", "job", "product", "food", "counted"):
        assert not set(split(pool, False)) & set(split(pool, True))
        assert all(is_held_out(word) for word in split(pool, True))


def test_the_committed_evaluation_set_is_what_the_script_writes() -> None:
    committed = load_cases()
    assert len(committed) > 3000
    for built, stored in zip(cases(), committed, strict=True):
        assert built == stored


def test_every_single_turn_ability_is_evaluated_with_unseen_wordings() -> None:
    unseen = {case.ability for case in load_cases() if case.split == "unseen"}
    assert set(ABILITIES) - {"draw"} <= unseen
    assert FILE.exists()


def test_a_training_world_never_draws_a_held_out_name() -> None:
    world = World(Random(0), WORDINGS)
    assert not any(is_held_out(world.pick("first")) for _ in range(500))


def test_no_word_list_teaches_slurs() -> None:
    """Regression: the frequency list of WordNet has them, and the spelling exercises drew from it. Kept as digests."""
    digests = {
        "120f6e5b4ea3",
        "0f28c4960d96",
        "e512a0558344",
        "e7b98c6aa5b9",
        "d6be0c9fb078",
        "130229cd3625",
        "4b18aefe826a",
        "c1cf820f7840",
        "8171c4ecae07",
        "a6ee0e6b8b6a",
    }
    for path in DATA.glob("chat_*"):
        words = {line.split("\t")[0].lower() for line in path.read_text(encoding="utf-8").splitlines()}
        assert not {word for word in words if sha256(word.encode()).hexdigest()[:12] in digests}, path.name
