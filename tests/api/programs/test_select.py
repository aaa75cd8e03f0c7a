"""Choices are scored exactly, from the prefix that all of them share, and the likeliest one is said."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import hemiola as hm
from hemiola.api.programs.scoring import SCORINGS, greedily
from hemiola.core.errors import InvalidRequest
from hemiola.core.hub import resolve_all

ASK = [{"role": "user", "content": "What is the capital of France?"}]
CHOICES = ["The capital of France is Paris.", "Rome", "The capital of France is Rome.", "I do not know that."]


@pytest.fixture(scope="module")
def reference() -> Any:
    path = next(source.path for source in resolve_all(["demo"]) if source.kind == "language")
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True).eval()


def reference_logprobs(model: Any, engine: hm.Engine, text: str, choice: str) -> list[float]:
    """Of the choice's tokens behind a text, from one forward of both."""
    tokenizer = engine.text_front(None).tokenizer
    before, whole = tokenizer.encode(text), tokenizer.encode(text + choice)
    assert whole[: len(before)] == before
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([whole])).logits[0].float(), -1)
    return [float(logprobs[i - 1, whole[i]]) for i in range(len(before), len(whole))]


def test_scores_are_those_of_one_forward_in_transformers(demo: hm.Engine, reference: Any) -> None:
    scores = demo.scores(CHOICES, messages=ASK)
    text = demo.text_front(None).render(ASK)
    assert [score.choice for score in scores] == CHOICES
    for score in scores:
        assert list(score.logprobs) == pytest.approx(reference_logprobs(reference, demo, text, score.choice), abs=1e-4)
        assert score.mean == pytest.approx(score.total / len(score.logprobs))


def test_choices_may_continue_a_text_and_a_turn_that_has_begun(demo: hm.Engine, reference: Any) -> None:
    begun = [*ASK, {"role": "assistant", "content": "The capital of France is"}]
    chat = demo.scores([" Paris", " Rome"], messages=begun, continue_final_message=True)
    text = demo.text_front(None).render(ASK) + "The capital of France is"
    plain = demo.scores([" Paris", " Rome"], prompt=text)
    for each, other in zip(chat, plain, strict=True):
        expected = reference_logprobs(reference, demo, text, each.choice)
        assert list(each.logprobs) == pytest.approx(expected, abs=1e-4)
        assert list(other.logprobs) == pytest.approx(expected, abs=1e-4)


def test_a_program_selects_the_likeliest_and_goes_on_with_it(demo: hm.Engine) -> None:
    @hm.program
    def capital(s: hm.State, scoring: Any) -> None:
        s += hm.user(ASK[0]["content"])
        s.select("answer", CHOICES, scoring=scoring)
        with s.assistant():
            s += "It is "
            s += hm.select("size", ["big", "small"])

    scores = demo.scores(CHOICES, messages=ASK)
    by_mean, by_sum = capital.on(demo).run("mean"), capital.on(demo).run("sum")
    assert by_mean["answer"] == max(scores, key=lambda score: score.mean).choice
    assert by_sum["answer"] == max(scores, key=lambda score: score.total).choice
    assert by_mean.messages()[1] == {"role": "assistant", "content": by_mean["answer"]}
    assert by_mean.messages()[2]["content"] == f"It is {by_mean['size']}"


SIZES = ["The capital of France is Paris.", "The capital of Spain is Madrid.", "The", "Paris", "I do not know that."]


def next_logprobs(model: Any, token_ids: list[int]) -> Any:
    """Of every token behind these."""
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([token_ids])).logits[0, -1].float(), -1)


def test_greedy_takes_the_token_that_transformers_finds_likeliest_among_those_that_lead_on(
    demo: hm.Engine, reference: Any
) -> None:
    """Walks the tree of the choices' tokens with the reference; a choice that ends early competes by its mean."""
    tokenizer = demo.text_front(None).tokenizer
    for question in ("What is the capital of France?", "What is the capital of Spain?", "Say a word."):
        ask = [{"role": "user", "content": question}]
        before = tokenizer.encode(demo.text_front(None).render(ask))
        left = {choice: tokenizer.encode(choice) for choice in SIZES}
        said: list[int] = []
        so_far: list[float] = []
        while len(left) > 1:
            logprobs = next_logprobs(reference, before + said)
            ended = [choice for choice, ids in left.items() if ids == said]
            best = max((ids[len(said)] for ids in left.values() if ids != said), key=lambda i: float(logprobs[i]))
            if ended and sum(so_far) / len(so_far) >= float(logprobs[best]):
                left = {ended[0]: said}
                break
            left = {choice: ids for choice, ids in left.items() if ids[: len(said) + 1] == [*said, best]}
            so_far.append(float(logprobs[best]))
            said.append(best)
        assert selected(demo, question, SIZES, "greedy") == next(iter(left))


def test_unconditional_compares_with_the_same_tokens_behind_the_beginning_of_a_text(
    demo: hm.Engine, reference: Any
) -> None:
    front = demo.text_front(None)
    scores = demo.scores(CHOICES, messages=ASK, unconditional=True)
    gains = {}
    for score in scores:
        given = reference_logprobs(reference, demo, front.render(ASK), score.choice)
        ids = [front.end_ids[0], *front.tokenizer.encode(score.choice)]
        anyway = [float(next_logprobs(reference, ids[:i])[ids[i]]) for i in range(1, len(ids))]
        assert list(score.logprobs) == pytest.approx(given, abs=1e-4)
        assert list(score.unconditional) == pytest.approx(anyway, abs=1e-4)
        gains[score.choice] = (sum(given) - sum(anyway)) / len(given)
        assert score.gain == pytest.approx(gains[score.choice], abs=1e-4)
    assert selected(demo, ASK[0]["content"], CHOICES, "unconditional") == max(gains, key=lambda choice: gains[choice])


def selected(engine: hm.Engine, question: str, choices: list[str], scoring: Any) -> str:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user(question)
        s.select("answer", choices, scoring=scoring)

    answer: str = ask.on(engine).run()["answer"]
    return answer


def score(choice: str, *tokens: tuple[str, float], unconditional: tuple[float, ...] = ()) -> hm.Score:
    return hm.Score(choice, tuple(p for _, p in tokens), tuple(t for t, _ in tokens), unconditional)


def test_the_four_readings_of_the_same_scores_differ_as_they_say() -> None:
    """Hand-made: each reading likes another one best."""
    scores = [
        score("whole", ("w", -3.0), unconditional=(-3.5,)),
        score("long", ("l", -1.9), ("o", -1.4), ("n", -0.1), ("g", -0.1), unconditional=(-1.0, -1.0, -1.0, -1.0)),
        score("greedy", ("g", -0.5), ("r", -9.0), unconditional=(-5.0, -5.0)),
        score("rare", ("x", -4.0), unconditional=(-19.0,)),
    ]
    chosen = {name: read(scores).choice for name, read in SCORINGS.items()}
    assert chosen == {"mean": "long", "sum": "whole", "greedy": "greedy", "unconditional": "rare"}


def test_greedy_weighs_ending_against_going_on() -> None:
    short = score("a", ("a", -0.4))
    assert greedily([score("ab", ("a", -0.4), ("b", -0.3)), short]).choice == "ab"
    assert greedily([score("ab", ("a", -0.4), ("b", -0.5)), short]).choice == "a"
    assert greedily([short, score("a", ("a", -0.4))]) is short


def test_the_prompt_is_computed_once_for_all_choices(demo: hm.Engine) -> None:
    ask = [{"role": "user", "content": "Which of many moods fits a story about seven old violets best?"}]
    moods = ["calm", "funny", "sad", "wild"]
    before = len(demo.trace)
    scores = demo.scores(moods, messages=ask)
    steps = [step for step in demo.trace.records[before:] if step.quantum == "tokens"]
    prompt_len = len(demo.text_front(None).tokenizer.encode(demo.text_front(None).render(ask)))
    num_choice_tokens = sum(len(score.logprobs) for score in scores)
    assert sum(step.work.new_tokens for step in steps) <= prompt_len + num_choice_tokens + 4 * len(moods)
    assert len(steps) <= 2 + max(len(score.logprobs) for score in scores)


def test_wrong_choices_are_named(demo: hm.Engine) -> None:
    wrong: Any
    for wrong in ([], ["a", ""], "ab"):
        with pytest.raises(InvalidRequest, match="choices"):
            demo.scores(wrong, messages=ASK)
    with pytest.raises(InvalidRequest, match="'choices': not valid Unicode"):
        hm.select("mood", ["calm", "\ud800"])
    with pytest.raises(InvalidRequest, match="either 'messages' or 'prompt'"):
        demo.scores(["a"], messages=ASK, prompt="x")
