"""Whatever goes wrong in a program says where: the variable, the program's line, and the request if one was sent."""

import re
import time
from typing import Any

import pytest

import hemiola as hm
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.programs.scripted import ScriptedCalls

WHERE = r"'{}' \(test_failures.py:{}(, request [0-9a-f]{{12}}-\d+)?\)"


def line_of(program: Any, text: str) -> int:
    """The line of this file on which the program says that."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = program._function.__code__.co_firstlineno
    return next(number for number in range(first, len(lines) + 1) if text in lines[number - 1])


@hm.program
def wrong(s: hm.State, kind: str) -> None:
    s += hm.user("?")
    s += hm.assistant(hm.gen("card", n=2 if kind == "keep" else 1))
    if kind == "keep":
        s.keep("card", 5)
        s += hm.user("Go on.")
        s += hm.gen("after keep")
    elif kind == "key":
        s += hm.gen_image("with key", s["card"]["none"])
    elif kind == "number":
        s += hm.gen_int("count")
    elif kind == "select":
        s.select("mood", ["a", "b"])
    elif kind == "engine":
        s += hm.gen_image("refused", "a dragon")


def answers(kind: str, prompt: Any, options: dict[str, Any]) -> str | Exception:
    return RuntimeError("no dragons") if "dragon" in str(prompt) else "seven"


@pytest.mark.parametrize(
    ("kind", "name", "words", "was_asked"),
    [
        ("keep", "after keep", r"Invalid index of s.keep\('card', ...\): 5. There are 2 answers.", False),
        ("key", "with key", "TypeError: string indices must be integers", False),
        ("number", "count", "Expected exactly one number, whole, but the answer is 'seven'", True),
        ("select", "mood", "ScriptedCalls scores no choices", False),
        ("engine", "refused", "no dragons", True),
    ],
)
def test_failures_of_nodes(kind: str, name: str, words: str, was_asked: bool) -> None:
    (error,) = wrong.on(ScriptedCalls(answers)).run(kind).errors
    found = re.fullmatch(WHERE.format(name, line_of(wrong, f'"{name}"')) + rf" failed: .*{words}.*", str(error))
    assert found and (found[1] is not None) == was_asked == bool(error.request_ids)


@hm.program
def endless(s: hm.State) -> None:
    s += hm.gen_image("endless", "a hill")
    s += hm.user("?")
    s += hm.gen("quick")
    str(s["endless"])


def test_a_time_limit_says_what_had_not_ended() -> None:
    calls = ScriptedCalls(lambda kind, *_: None if kind == "image" else "done")
    with pytest.raises(TimeoutError) as failure:
        endless.on(calls, timeout_s=0.3).run()
    where = WHERE.format("endless", line_of(endless, '"endless"'))
    assert re.fullmatch(rf"Not done after 0.3 s, and cancelled: {where}.", str(failure.value))


def test_a_time_out_of_the_programs_own_is_left_alone() -> None:
    @hm.program
    async def own(s: hm.State) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match=r"^mine$"):
        own.on(ScriptedCalls(answers), timeout_s=5).run()


def test_what_was_cancelled_says_so_with_its_line_and_request() -> None:
    seen: list[BaseException] = []

    @hm.program
    def waits(s: hm.State) -> None:
        s += hm.gen_image("endless", "a hill")
        try:
            str(s["endless"])
        except BaseException as error:
            seen.append(error)
            raise

    with pytest.raises(TimeoutError):
        waits.on(ScriptedCalls(lambda *_: None), timeout_s=0.2).run()
    for _ in range(200):
        if seen:
            break
        time.sleep(0.01)
    assert re.fullmatch(WHERE.format("endless", r"\d+") + ": the program was cancelled.", str(seen[0]))


def test_mistakes_of_the_function_are_raised_at_their_line() -> None:
    @hm.program
    def mistaken(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("x", regex="a+")

    with pytest.raises(InvalidRequest) as failure:
        mistaken.on(ScriptedCalls(answers)).run()
    assert any(str(entry.path) == __file__ and "regex" in str(entry.statement) for entry in failure.traceback)
