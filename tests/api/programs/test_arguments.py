"""Wrong types and values, refused at the line that gives them; and what would otherwise wait for ever."""

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hemiola as hm
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.programs.scripted import ScriptedCalls


def calls() -> ScriptedCalls:
    return ScriptedCalls(lambda kind, prompt, options: "yes")


@hm.tool
def look(where: str) -> str:
    """Look somewhere."""
    raise StopIteration


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda s: s.__iadd__(5), "Invalid addition to a program: 5, of type int"),
        (lambda s: s.add(None), "Invalid addition to a program: None"),
        (lambda s: s.add(hm.gen), "Invalid addition to a program: <function gen"),
        (lambda s: s.add(hm.gen("")), "Invalid name of a variable: ''"),
        (lambda s: s.add(hm.gen_image(None, "x")), "Invalid name of a variable: None"),  # type: ignore[arg-type]
        (lambda s: s.select(5, ["x"]), "Invalid name of a variable: 5"),
        (lambda s: s.add(hm.gen("x", n=0)), "Invalid 'n' of 'x': 0. Allowed: a whole number, 1 or more"),
        (lambda s: s.add(hm.gen("x", n="2")), "Invalid 'n' of 'x': '2'"),  # type: ignore[arg-type]
        (lambda s: s.add(hm.gen("x", max_rounds=0)), "Invalid 'max_rounds' of 'x': 0"),
        (lambda s: s.add(hm.gen("x", tools=look)), "Invalid 'tools' of 'x': Tool"),  # type: ignore[arg-type]
        (lambda s: s.add(hm.gen("x", tools=[len])), "Invalid 'tools' of 'x': <built-in function len>"),  # type: ignore[list-item]
        (lambda s: s.add(hm.gen("x", tools=[look, look])), "look, look. Allowed: functions with different names"),
        (lambda s: s.add(hm.gen("x", tools=[look], n=2)), "Invalid 'n' of 'x': 2. Allowed: 1"),
        (lambda s: s.add(hm.gen_int("x", retries="1")), "Invalid 'retries' of 'x': '1'"),  # type: ignore[arg-type]
        (lambda s: s.add(hm.gen_int("x", minimum="a")), "Invalid 'minimum' of 'x': 'a'. Allowed: a number"),  # type: ignore[arg-type]
        (lambda s: s.add(hm.gen_float("x", minimum=2, maximum=1)), "Allowed: not below the minimum, which is 2"),
        (lambda s: s.select("x", ["a"], scoring=["mean"]), r"Invalid 'scoring' of 'x': \['mean'\]"),
        (lambda s: s.fork("2"), "Invalid 'n' of fork: '2'"),
        (lambda s: s.join([]), r"Invalid 'forks' to join: \[\]"),
        (lambda s: s.join([1]), r"Invalid 'forks' to join: \[1\]"),
        (lambda s: s.__setitem__("x", 5), "Invalid value of 'x': 5. Allowed: a variable"),
        (lambda s: hm.tool(5), "Invalid tool: 5. Allowed: functions and methods"),  # type: ignore[arg-type]
    ],
)
def test_it_is_refused_where_it_stands(wrong: Callable[[Any], object], words: str) -> None:
    @hm.program
    def mistaken(s: hm.State) -> None:
        s += hm.user("?")
        wrong(s)

    with pytest.raises(InvalidRequest, match=words):
        mistaken.on(calls()).run()


def test_choices_may_come_from_an_iterator() -> None:
    assert hm.select("x", iter(["a", "b"])).choices == ("a", "b")  # type: ignore[arg-type]


def test_fields_are_called_as_they_were_written(demo: hm.Engine) -> None:
    @hm.program
    def drawing(s: hm.State) -> None:
        s += hm.gen_image("picture", "a fox", steps=0)
        s += hm.gen_image("other", "a fox", guidance=-1.0)
        s += hm.gen_video("clip", "a fox", frames=0)

    said = [str(error) for error in drawing.on(demo).run().errors]
    for field, words in zip(("steps", "guidance", "frames"), said, strict=True):
        assert f"Invalid '{field}'" in words


@pytest.mark.timeout(20)
def test_a_program_that_raises_stop_iteration_ends() -> None:
    @hm.program
    def ending(s: hm.State) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="raised StopIteration") as failure:
        ending.on(calls()).run()
    assert isinstance(failure.value.__cause__, StopIteration)


@pytest.mark.timeout(20)
async def test_a_tool_that_raises_stop_iteration_ends() -> None:
    assert await look.call('{"where": "here"}') == "Error: look raised StopIteration."


async def test_an_error_that_is_only_a_key_says_what_it_is() -> None:
    @hm.tool
    def find(key: str) -> int:
        return {"a": 1}[key]

    assert await find.call('{"key": "b"}') == "Error: KeyError('b')"


def test_an_error_does_not_grow_with_those_who_read_it() -> None:
    @hm.program
    def failing(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(hm.gen_int("x"))

    run = failing.on(calls()).run()
    lengths = set()
    for _ in range(3):
        with pytest.raises(hm.NodeFailed) as failure:
            run["x"]
        lengths.add(len(traceback.extract_tb(failure.value.__traceback__)))
    assert len(lengths) == 1


@pytest.mark.parametrize("engine", ["demo", 5, hm.Engine])
def test_programs_run_only_where_they_can(engine: Any) -> None:
    @hm.program
    def nothing(s: hm.State) -> None:
        pass

    with pytest.raises(InvalidRequest, match=r"Invalid engine: .* Allowed: an Engine, a ServedEngine, a Client"):
        nothing.on(engine)
    with pytest.raises(InvalidRequest, match="Invalid engine"), hm.using(engine):
        pass


@pytest.mark.parametrize("timeout_s", [-1, "1", float("nan"), True])
def test_time_limits_are_seconds(timeout_s: Any) -> None:
    @hm.program
    def nothing(s: hm.State) -> None:
        pass

    with pytest.raises(InvalidRequest, match=r"Invalid 'timeout_s': .* Allowed: seconds, 0 or more"):
        nothing.on(calls(), timeout_s=timeout_s)


def test_what_cannot_be_run_is_no_program() -> None:
    def yielding(s: hm.State) -> Any:
        yield s

    for function in (yielding, 5):
        with pytest.raises(InvalidRequest, match=r"Invalid program: .* without `yield`"):
            hm.program(function)  # type: ignore[arg-type]


@pytest.mark.timeout(20)
def test_a_tool_that_hangs_does_not_hold_up_a_time_limit(demo: hm.Engine) -> None:
    let_go = threading.Event()

    @hm.tool
    def get_weather(city: str) -> str:
        """Get the weather in a city."""
        let_go.wait(30)
        return "sunny"

    @hm.program
    def asking(s: hm.State) -> None:
        s += hm.user("What is the weather in Oslo?")
        s += hm.assistant(hm.gen("answer", tools=[get_weather], max_tokens=40))

    began = time.monotonic()
    with pytest.raises(TimeoutError, match="'answer'"):
        asking.on(demo, timeout_s=1).run()
    assert time.monotonic() - began < 5
    let_go.set()


def test_numbers_of_numpy_are_numbers() -> None:
    """They were refused, or went on as what JSON has no word for."""
    two: Any = np.int64(2)
    half: Any = np.float32(0.5)

    @hm.program
    def book(s: hm.State) -> None:
        for fork in s.fork(two):
            fork += hm.gen("a", seed=two, temperature=half)
            fork += hm.gen_image("b", "x", size=(two * 32, 64), seed=two)

    asked = hm.gen("a", n=two, seed=two, temperature=half)
    drawn = hm.gen_image("b", "x", seed=two, guidance=half)
    numbers = [asked.n, *asked.options.values(), *drawn.options.values()]
    assert numbers == [2, 0.5, 2, 0.5, 2] and {type(number) for number in numbers} == {int, float}
    assert len(book.on(calls(), timeout_s=half * 40).run().forks) == 2
    assert '"n":2' in book.graph().to_json()
