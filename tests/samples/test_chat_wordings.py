"""The evaluation of the chat model is fair: its wordings and words are none of the training generator's."""

from hashlib import sha256
from random import Random

import pytest

from samples.train.chat.abilities.families import FAMILIES
from samples.train.chat.conversations import ABILITIES, WORDINGS
from samples.train.chat.evaluation.build import FILE, cases
from samples.train.chat.evaluation.run import load_cases
from samples.train.chat.evaluation.wordings import UNSEEN, UNSEEN_TOOLS
from samples.train.chat.grammar import PLACEHOLDER, expand, matcher, noise, normalise
from samples.train.chat.prepare import DATA
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
