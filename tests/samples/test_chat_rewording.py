"""Other words in the wordings of the chat training: what may change and what may not."""

import re
from random import Random
from unittest.mock import patch

from samples.train.chat.grammar import Slot
from samples.train.chat.kept_out import is_kept_out
from samples.train.chat.mixture import conversation, training_world
from samples.train.chat.rewording import FILE, joined, reworded, thesaurus


def test_every_line_of_the_thesaurus_offers_at_least_one_other_word() -> None:
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            assert re.fullmatch(r"[a-z]+( [a-z]+)* > .+|[^>/]+( / [^>/]+)+", line), line
    assert all(others and word not in others for word, others in thesaurus().items())


def test_words_so_frequent_that_every_request_would_change_are_no_heads() -> None:
    """Regression: a group that named "with" or "you" among its alternatives once put synonyms for these everywhere."""
    assert not set(
        "a an the you i me my is are be to of in on at for from with and or not no do have has".split()
    ) & set(thesaurus())


def test_what_was_filled_in_stays_and_synonyms_come_from_the_thesaurus() -> None:
    rng, seen = Random(2), set()
    for _ in range(300):
        found = reworded(rng, ["please write ", Slot("spell word"), " in reverse order"], ("zebra",))
        assert Slot("spell word") in [piece for piece in found if isinstance(piece, Slot)]
        seen.add("".join(found))
    assert len(seen) > 20 and "please write spell word in reverse order" in seen


def test_a_stranger_takes_the_place_of_one_word_of_a_long_wording_only() -> None:
    rng = Random(3)
    with (
        patch("samples.train.chat.rewording.SYNONYM_SHARE", 0.0),
        patch("samples.train.chat.rewording.STRANGE_SHARE", 1.0),
    ):
        assert reworded(rng, ["spell ", Slot("cat"), " now"], ("zebra",)) == ["spell ", "cat", " now"]
        text = ["could you kindly spell out the word ", Slot("cat")]
        outcomes = {"".join(reworded(rng, text, ("zebra",))) for _ in range(80)}
    assert any("zebra" in outcome for outcome in outcomes)
    assert all(outcome.count("zebra") <= 1 and outcome.endswith("cat") for outcome in outcomes)


def test_neighbouring_literals_become_one_piece() -> None:
    assert joined(["letter", "s of ", Slot("a"), Slot("b"), "x", ""]) == ["letters of ", "a", "b", "x"]


def test_training_with_rewording_never_words_a_request_as_the_evaluation_does() -> None:
    world = training_world(21, has_rewording=True)
    checked = 0
    real = type(world.book).ask

    def ask(book, *arguments, **keywords):  # type: ignore[no-untyped-def]
        nonlocal checked
        found = real(book, *arguments, **keywords)
        assert not is_kept_out(found)
        checked += 1
        return found

    with patch.object(type(world.book), "ask", ask):
        for _ in range(150):
            assert conversation(world).turns
    assert checked > 150
