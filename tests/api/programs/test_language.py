"""What a program says and what is asked for it: turns, variables, forks, refusals, on scripted answers."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from PIL import Image
from pydantic import BaseModel

import hemiola as hm
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.programs.scripted import ScriptedCalls

PICTURE: Any = Image.new("RGB", (8, 8))


def numbered() -> ScriptedCalls:
    """Answers "a0", "a1", ... in the order of asking."""
    made: list[str] = []

    def answer(kind: str, prompt: Any, options: dict[str, Any]) -> str:
        made.append(f"a{len(made)}")
        return made[-1]

    return ScriptedCalls(answer)


def test_turns_are_sent_as_messages_and_answers_come_back_in_them() -> None:
    @hm.program
    def talk(s: hm.State, name: str) -> None:
        s += hm.system("Be short.")
        s += hm.user("I am ", name, ".")
        s += hm.assistant(hm.gen("first"))
        s += hm.user("What did you say? ", s["first"], "?")
        s += hm.assistant(hm.gen("second", max_tokens=5, stop="\n"))

    calls = numbered()
    run = talk.on(calls).run("Ada")
    before = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "I am Ada."}]
    after = [*before, {"role": "assistant", "content": "a0"}, {"role": "user", "content": "What did you say? a0?"}]
    assert calls.prompts("chat") == [before, after]
    assert run.messages() == [*after, {"role": "assistant", "content": "a1"}]
    assert (run["first"], run["second"]) == ("a0", "a1")
    assert {"max_tokens": 5, "stop": "\n"}.items() <= calls.asked[1].options.items()
    assert run.text().endswith("user: What did you say? a0?\nassistant: a1")


def test_a_turn_that_has_begun_is_continued() -> None:
    @hm.program
    def two_gaps(s: hm.State) -> None:
        s += hm.user("Capital?")
        with s.assistant():
            s += "It is "
            s += hm.gen("city")
            s += ", in "
            s += hm.gen("country")

    calls = numbered()
    run = two_gaps.on(calls).run()
    assert [prompt[-1]["content"] for prompt in calls.prompts("chat")] == ["It is ", "It is a0, in "]
    assert all(asked.options["continue_final_message"] for asked in calls.asked)
    assert run.messages()[-1] == {"role": "assistant", "content": "It is a0, in a1"}


def test_plain_text_is_completed_and_has_no_roles() -> None:
    @hm.program
    def plain(s: hm.State) -> None:
        s += "Once "
        s += hm.gen("next")
        s += "; then "
        s += hm.gen("last")

    calls = numbered()
    run = plain.on(calls).run()
    assert calls.prompts("complete") == ["Once ", "Once a0; then "]
    assert run.text() == "Once a0; then a1"

    @hm.program
    def mixed(s: hm.State) -> None:
        s += "Once "
        s += hm.user("?")

    with pytest.raises(InvalidRequest, match="plain text"):
        mixed.on(calls).run()


def test_passing_a_variable_on_does_not_wait_and_using_it_does() -> None:
    gate = threading.Event()
    seen: list[bool] = []

    @hm.program
    def chain(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(hm.gen("x"))
        s += hm.gen_image("picture", "A " + s["x"] + " in the sun", size=(16, 16), steps=2)
        seen.append(s["x"].is_there)
        gate.set()
        seen.append(s["x"] == "a0")
        seen.append(f"{s['x']}!" == "a0!")

    def answer(kind: str, prompt: Any, options: dict[str, Any]) -> str:
        assert gate.wait(5), "The program waited for a variable that it only passed on."
        return "a0"

    calls = ScriptedCalls(answer)
    run = chain.on(calls).run()
    assert seen == [False, True, True]
    assert calls.prompts("image") == ["A a0 in the sun"]
    assert run["picture"].image.size == (16, 16)
    assert {"size": (16, 16), "num_inference_steps": 2}.items() <= calls.asked[1].options.items()


async def test_a_coroutine_awaits_and_is_told_to() -> None:
    @hm.program
    async def loop(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(hm.gen("x"))
        with pytest.raises(InvalidRequest, match="await s\\['x'\\]"):
            str(s["x"])
        assert await s["x"] == "a0"
        assert await s.messages() == [{"role": "user", "content": "?"}, {"role": "assistant", "content": "a0"}]

    await loop.on(numbered()).arun()


@pytest.mark.parametrize("how", ["gather", "concatenate"])
def test_forks_go_on_from_what_was_said_and_join(how: Any) -> None:
    @hm.program
    def book(s: hm.State) -> None:
        s += hm.user("Story")
        s += hm.assistant(hm.gen("story"))
        scenes = s.fork(3)
        for i, scene in enumerate(scenes):
            scene += hm.user(f"Scene {i}")
            scene += hm.assistant(hm.gen("line"))
        scenes.join(how)
        s += hm.user(s["line"][1])

    calls = numbered()
    run = book.on(calls).run()
    assert [prompt[:2] for prompt in calls.prompts("chat")[1:]] == 3 * [run.messages()[:2]]
    assert run["line"] == [fork["line"] for fork in run.forks]
    assert sorted(run["line"]) == ["a1", "a2", "a3"]
    assert run.messages()[-1]["content"] == run["line"][1]
    spoken = [message["content"] for fork in run.forks for message in fork.messages()[2:]]
    assert [message["content"] for message in run.messages()[2:-1]] == (spoken if how == "concatenate" else [])
    assert [fork["story"] for fork in run.forks] == 3 * [run["story"]]


def test_one_of_several_answers_is_kept() -> None:
    @hm.program
    def best(s: hm.State, is_kept: bool) -> None:
        s += hm.user("Name one.")
        s += hm.assistant(hm.gen("drafts", n=3))
        if is_kept:
            s.keep("drafts", 2)
        s += hm.user("Why?")
        s += hm.assistant(hm.gen("why"))

    calls = numbered()
    run = best.on(calls).run(is_kept=True)
    assert run["drafts"] == ["a0", "a1", "a2"]
    assert calls.prompts("chat")[1][1] == {"role": "assistant", "content": "a2"}
    with pytest.raises(InvalidRequest, match=r"s.keep\('drafts', index\)"):
        best.on(calls).run(is_kept=False)


@dataclass
class Card:
    name: str
    age: int


class Fox(BaseModel):
    name: str
    legs: int


@pytest.mark.parametrize(
    ("expression", "answer", "value"),
    [
        (hm.gen_int("x", minimum=0), "It is 12.", 12),
        (hm.gen_int("x"), "1,024", 1024),
        (hm.gen_float("x"), "About -2.5 degrees", -2.5),
        (hm.gen_json("x"), '{"a": [1, 2]}', {"a": [1, 2]}),
        (hm.gen_json("x", into=Card), '```json\n{"name": "Bo", "age": 3}\n```', Card("Bo", 3)),
        (hm.gen_json("x", into=list[int]), "[1, 2]", [1, 2]),
        (hm.gen_json("x", into=Fox), '{"name": "Bo", "legs": "4"}', Fox(name="Bo", legs=4)),
    ],
)
def test_answers_are_read_as_what_was_asked_for(expression: hm.Gen, answer: str, value: object) -> None:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(expression)

    run = ask.on(ScriptedCalls(lambda *_: answer)).run()
    assert run["x"] == value and run.messages()[1]["content"] == answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (hm.gen_int("x"), "none"),
        (hm.gen_int("x"), "3 or 4"),
        (hm.gen_int("x"), "2.5"),
        (hm.gen_int("x", maximum=9), "10"),
        (hm.gen_float("x", minimum=0.0), "-0.5"),
        (hm.gen_json("x"), "{"),
        (hm.gen_json("x", into=Card), '{"name": "Bo"}'),
        (hm.gen_json("x", into=Fox), '{"name": "Bo", "legs": "many"}'),
    ],
)
def test_other_answers_fail_with_what_was_expected(expression: hm.Gen, answer: str) -> None:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(expression)

    calls = ScriptedCalls(lambda *_: answer)
    run = ask.on(calls).run()
    with pytest.raises(hm.NodeFailed, match="Expected") as failure:
        run["x"]
    assert failure.value.code == "answer_unfit" and len(calls.asked) == 1


@pytest.mark.parametrize(
    ("retries", "num_asked", "is_good"), [(0, 1, False), (1, 2, False), (2, 3, True), (5, 3, True)]
)
def test_answers_that_do_not_fit_are_asked_for_again_only_as_often_as_said(
    retries: int, num_asked: int, is_good: bool
) -> None:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(hm.gen_int("x", retries=retries, seed=7))

    answers = iter(["no", "maybe", "3"])
    calls = ScriptedCalls(lambda *_: next(answers))
    run = ask.on(calls).run()
    assert [asked.options["seed"] for asked in calls.asked] == [7, 8, 9][:num_asked]
    assert (run["x"] == 3) if is_good else len(run.errors) == 1
    assert len({asked.options["terms"].id for asked in calls.asked}) == num_asked


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda s: s.add(hm.gen("x", regex="a+")), "'regex' of 'x' is not supported"),
        (lambda s: s.add(hm.gen("x", json_schema={})), "'json_schema' of 'x' is not supported"),
        (lambda s: s.add(hm.gen("x", json_schema=Fox)), "'json_schema' of 'x' .* gen_json"),
        (lambda s: s.add(hm.edit_image("x", "fox.png", "in the snow")), "'edit_image' is not supported: .* gen_image"),
        (lambda s: s.add(hm.user("What is this? ", hm.image("fox.png"))), "'image' is not supported: .* sees pictures"),
        (lambda s: s.add(hm.user("What is this? ", hm.video("fox.mp4"))), "'video' is not supported: .* sees clips"),
        (lambda s: s.add(hm.user(PICTURE)), r"part of user\(...\), of type Image. Allowed: strings"),
        (lambda s: s.add(hm.gen_int("x", retries=1, temperature=0)), "same answer"),
        (lambda s: s.add(hm.gen_image("x", 3)), "Invalid 'prompt' of 'x', of type int"),  # type: ignore[arg-type]
        (lambda s: s["nothing"], "No variable is called 'nothing'"),
        (lambda s: s.add(hm.user(hm.gen("x"))), "does not write what the user says"),  # type: ignore[arg-type]
        (lambda s: s.__iadd__("text"), "Say whose"),
        (lambda s: s.fork(0), "Invalid 'n' of fork: 0"),
        (lambda s: s.select("x", []), "Invalid 'choices' of 'x'"),
        (lambda s: s.select("x", "ab"), "Invalid 'choices' of 'x'"),
        (lambda s: s.select("x", ["a"], scoring="best"), "Allowed: mean, sum, greedy, unconditional"),
        (lambda s: s.fork(2).join("other"), "Allowed: gather, concatenate"),
        (lambda s: s.keep("x", 0), "no several answers"),
    ],
)
def test_mistakes_are_named(wrong: Callable[[Any], object], words: str) -> None:
    @hm.program
    def mistaken(s: hm.State) -> None:
        s += hm.user("?")
        wrong(s)

    with pytest.raises(InvalidRequest, match=words):
        mistaken.on(numbered()).run()


def test_json_that_does_not_fit_says_what_is_missing() -> None:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen_json("x", into=Card)

    with pytest.raises(hm.NodeFailed, match=r"fits Card, but .* missing required field `age`"):
        ask.on(ScriptedCalls(lambda *_: '{"name": "Bo"}')).run()["x"]


@pytest.mark.parametrize("how", ["alone", "in a list", "as a prompt"])
def test_pictures_do_not_silently_become_text(how: str) -> None:
    @hm.program
    def look(s: hm.State) -> None:
        s += hm.user("?")
        forks = s.fork(2)
        for fork in forks:
            fork += hm.gen_image("picture", "a fox")
        forks.join()
        seen = s["picture"] if how == "in a list" else s["picture"][0]
        if how == "as a prompt":
            s += hm.gen_video("answer", seen)
            return
        s += hm.user("What is this? ", seen)
        s += hm.gen("answer")

    calls = numbered()
    (error,) = look.on(calls).run().errors
    assert "'answer' (test_language.py:" in str(error) and "no served model sees pictures" in str(error)
    assert calls.prompts("chat") == calls.prompts("video") == []


def test_select_needs_somebody_who_scores() -> None:
    @hm.program
    def choose(s: hm.State) -> None:
        s += hm.user("?")
        s.select("mood", ["calm", "sad"])

    (error,) = choose.on(numbered()).run().errors
    assert "ScriptedCalls scores no choices" in str(error)


def test_a_program_needs_somewhere_to_run() -> None:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("x")

    with pytest.raises(InvalidRequest, match=r"hemiola.using\(engine\)"):
        ask.run()
    with hm.using(numbered()):
        assert ask.run()["x"] == "a0"
        assert asyncio.run(ask.arun())["x"] == "a1"
