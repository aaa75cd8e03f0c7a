"""What the chat training says about itself is true: answers follow from requests, and dev cases are worded anew."""

import json
from collections import Counter
from typing import Any

from samples.train.chat import dev
from samples.train.chat.abilities import extraction
from samples.train.chat.abilities.records import genres
from samples.train.chat.mixture import TRAINED, combined, conversation, mixed_case, system_task, training_world
from samples.train.chat.rendering import pieces


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [leaf for inner in value for leaf in leaves(inner)] if isinstance(value, list) else [value]


def keys_of(value: Any) -> list[str]:
    return [key for name, inner in value.items() for key in (name, *keys_of(inner))] if isinstance(value, dict) else []


def test_an_extraction_holds_values_of_its_text_under_the_keys_that_were_asked_for() -> None:
    world = training_world(31)
    kinds: Counter[str] = Counter()
    for _ in range(600):
        exchange = extraction.extract(world)
        answer = json.loads(exchange.answer)
        for key in keys_of(answer):
            assert key in exchange.user, exchange
        for value in leaves(answer):
            assert value is None or str(value).casefold() in exchange.user.casefold(), exchange
            kinds[type(value).__name__] += 1
        kinds["nested"] += any(isinstance(value, dict) for value in answer.values())
        kinds["list"] += any(isinstance(value, list) for value in answer.values())
    assert min(kinds[name] for name in ("str", "int", "NoneType", "nested", "list")) >= 10, kinds


def test_every_genre_has_facts_that_its_lines_state() -> None:
    assert len(genres()) >= 20
    for genre in genres():
        assert len(genre.facts) >= 9
        for fact in genre.facts:
            assert all("$v" in way for way in fact.ways), fact
            assert len(set(fact.keys)) >= 2


def test_mixed_letters_are_changed_and_nothing_else() -> None:
    world = training_world(32)
    for is_upper in (True, False):
        for _ in range(50):
            exchange = mixed_case(world, is_upper)
            assert exchange.answer.casefold() in exchange.user.casefold()
            assert exchange.answer == (exchange.answer.upper() if is_upper else exchange.answer.lower())


def test_two_requests_get_two_lines() -> None:
    world = training_world(33)
    for _ in range(100):
        assert len(combined(world).answer.split("\n")) == 2


def test_a_task_in_the_system_text_leaves_nothing_but_data_to_the_user() -> None:
    world = training_world(34)
    for _ in range(60):
        talk = system_task(world)
        assert talk.system and all(len(turn.content) < 90 for turn in talk.turns if turn.role == "user")


def test_control_text_is_learnt_only_where_tools_or_thoughts_are() -> None:
    """Chats without tools never answer with a call; markers stand nowhere but in calls."""
    world = training_world(35)
    for _ in range(400):
        talk = conversation(world)
        assert any(has_loss for _, has_loss in pieces(talk))
        for turn in talk.turns:
            if turn.role == "assistant":
                assert talk.tools or "<tool_call>" not in turn.content
                assert "<think>" not in turn.content and "</think>" not in turn.content
            else:
                assert "<tool" not in turn.content and "<think" not in turn.content


def test_refusals_stay_rare() -> None:
    world = training_world(36)
    answers = [turn.content for _ in range(1500) for turn in conversation(world).turns if turn.role == "assistant"]
    refusals = ("Sorry, I am", "I have no tool", "I do not know the word", "You have not told me")
    assert sum(answer.startswith(refusals) for answer in answers) < 0.08 * len(answers)


def test_dev_cases_cover_the_abilities_and_are_the_same_each_time() -> None:
    cases = dev.cases()
    assert len(cases) > 900 and set(TRAINED) <= {case.ability for case in cases}
    assert cases[:100] == dev.cases()[:100]
