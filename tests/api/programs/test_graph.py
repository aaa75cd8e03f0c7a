"""Programs as typed JSON: what is written down does what the function does; what cannot be written down says why."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import hemiola as hm
from hemiola.api.programs.replay import replay, run_graph
from hemiola.api.programs.schema import MAX_BRANCHES, MAX_NODES, MAX_STEPS, ProgramGraph, read_graph
from hemiola.api.programs.writing import Writing, WrittenState
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.programs.scripted import ScriptedCalls


@hm.program
def everything(s: hm.State, animal: str) -> None:
    s += hm.system("You write.")
    s += hm.user("A scene of ", animal)
    with s.assistant():
        s += "Once, "
        s += hm.gen("scene", max_tokens=5, stop=["."])
        s += hm.gen_image("early", "a picture of " + s["scene"], steps=1, size=(32, 32))
        s += " And "
        s += hm.gen("more", n=2, temperature=0.5)
    s.keep("more", 1)
    forks = s.fork(2)
    for i, fork in enumerate(forks):
        fork += hm.user(f"go {i}")
        fork += hm.gen_int("number", minimum=0, maximum=9, retries=1, temperature=1.0, seed=3)
        fork += hm.gen_json("data")
        fork += hm.gen_video("clip", fork["data"]["list"][i] + fork["scene"], frames=5)
    forks.join("concatenate")
    s += hm.user("and ", s["number"], s["number"][1])
    s["last"] = s["number"]
    s += hm.gen_image("end", s.text(), negative_prompt="x", guidance=2.0, seed=1, n=2)


@hm.program
def plain_text(s: hm.State) -> None:
    s += "The fox "
    s += hm.gen("a")
    s += hm.gen("b")
    for fork in s.fork(2):
        fork += " then " + fork["a"]
        fork += hm.gen("c")


def answers(kind: str, prompt: Any, options: dict[str, Any]) -> str:
    text = str(prompt)
    if "go" in text:
        return '{"list": ["first", "second"]}' if "7" in text.split("go")[1] else "7"
    return f"answer {options['index']} of {len(text)}"


@pytest.mark.parametrize(("program", "arguments"), [(everything, ("a fox",)), (plain_text, ())])
async def test_what_is_written_down_asks_what_the_function_asks(program: Any, arguments: tuple[Any, ...]) -> None:
    here, there = ScriptedCalls(answers), ScriptedCalls(answers)
    run = await program.on(here).arun(*arguments)
    graph = read_graph(msgspec.json.decode(program.graph(*arguments).to_json()))
    again = await run_graph(graph, there, terms=hm.CallTerms())
    assert run.errors == again.errors == []

    def asked(calls: ScriptedCalls) -> list[Any]:
        options = [{k: v for k, v in each.options.items() if k not in ("terms", "stop")} for each in calls.asked]
        return sorted(zip([(c.kind, c.prompt) for c in calls.asked], options, strict=True), key=repr)

    assert asked(there) == asked(here) and len(here.asked) == len(run.nodes) > 3
    assert again.text() == run.text() and again.names == run.names
    assert [fork.text() for fork in again.forks] == [fork.text() for fork in run.forks]
    assert [(n.kind, n.name, n.branch, [i.idx for i in n.inputs]) for n in again.nodes] == [
        (n.kind, n.name, n.branch, [i.idx for i in n.inputs]) for n in run.nodes
    ]


def test_writing_down_what_was_written_down_changes_nothing() -> None:
    graph = everything.graph("a fox")
    writing = Writing()
    replay(graph, WrittenState(writing))  # type: ignore[arg-type]
    assert writing.graph == graph


async def test_a_coroutine_can_be_written_down_too() -> None:
    @hm.program
    async def coroutine(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("a")

    assert len(coroutine.graph().steps) == 2


def test_nothing_runs_while_it_is_written_down_and_its_order_can_be_drawn() -> None:
    calls = ScriptedCalls(answers)
    trace = everything.on(calls).trace("a fox")
    assert calls.asked == [] and [node.name for node in trace.nodes][:3] == ["scene", "early", "more"]
    assert trace.draw().count("<g>") == len(trace.nodes)


LOOKS: list[Callable[[Any], object]] = [
    str,
    len,
    bool,
    lambda x: f"{x}",
    lambda x: x == "a",
    lambda x: [*x],
    lambda x: x.value,
    lambda x: "a" in x,
    lambda x: x.upper(),
]


@pytest.mark.parametrize("look", LOOKS)
def test_a_line_that_looks_at_a_value_is_named(look: Callable[[Any], object]) -> None:
    @hm.program
    def looks(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("answer")
        look(s["answer"])

    place = r"test_graph.py:\d+ looks at the value of 'answer' \(test_graph.py:\d+\)"
    with pytest.raises(InvalidRequest, match=place + ".*without remote=True"):
        looks.graph()


async def test_a_coroutine_that_waits_for_a_value_is_named() -> None:
    @hm.program
    async def looks(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("answer")
        await s["answer"]

    line = inspect.getsourcelines(looks._function)[1] + 4
    with pytest.raises(InvalidRequest, match=f"test_graph.py:{line} looks at"):
        looks.graph()


@hm.tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.mark.parametrize(
    ("expression", "named"),
    [(hm.gen("x", tools=[add]), "'tools' of 'x'"), (hm.gen_json("x", into=dict[str, int]), "'into' of 'x'")],
)
def test_what_only_this_process_has_cannot_be_written_down(expression: Any, named: str) -> None:
    @hm.program
    def needs(s: hm.State) -> None:
        s += hm.user("?")
        s += expression

    with pytest.raises(InvalidRequest, match=named):
        needs.graph()


TURN: dict[str, Any] = {"type": "turn", "role": "user", "parts": "?"}


def answer(**gen: Any) -> dict[str, Any]:
    return {"type": "turn", "role": "assistant", "parts": [{"type": "gen", "name": "a"} | gen]}


def picture(reference: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image", "name": "p", "prompt": [reference]}


@pytest.mark.parametrize(
    ("steps", "param", "says"),
    [
        ([], "program.steps", f"1 to {MAX_STEPS}"),
        ([TURN] * (MAX_STEPS + 1), "program.steps", f"1 to {MAX_STEPS}"),
        ([answer()] * (MAX_NODES + 1), f"program.steps[{MAX_NODES}]", f"{MAX_NODES} at most"),
        ([{"type": "fork", "n": MAX_BRANCHES}], "program.steps[0]", f"{MAX_BRANCHES} at most"),
        ([{"type": "fork", "n": 0}], "program.steps[0]", "1 or more"),
        ([{"type": "dance"}], "program.steps[0].type", "turn, image, video, fork"),
        ([{"type": "turn", "role": "tool"}], "program.steps[0].role", "tool"),
        ([TURN, answer(n="2")], "program.steps[1].parts[0].n", "Expected `int`"),
        ([TURN, answer(temprature=1)], "program.steps[1].parts[0]", "temprature"),
        ([TURN, answer(name="")], "program.steps[1]", "1 to 128"),
        ([TURN, answer(retries=1)], "program.steps[1]", "'read' to be int, float or json"),
        ([TURN, answer(minimum=1)], "program.steps[1]", "'read' to be int or float"),
        ([TURN, answer(read="int", minimum=0.5)], "program.steps[1]", "whole numbers"),
        ([TURN, {"type": "turn", "parts": [{"type": "gen", "name": "a"}]}], "program.steps[0]", ""),
        ([TURN, answer(n=2), answer(name="b")], "program.steps[2]", "s.keep"),
        ([picture({"type": "value", "node": 0})], "program.steps[0]", "none before"),
        ([TURN, answer(), picture({"type": "value", "node": 1})], None, "0 to 0"),
        ([TURN, answer(), picture({"type": "said", "node": 0, "choice": 0})], None, "no 'choice'"),
        ([{"type": "image", "branch": "3", "name": "p", "prompt": "x"}], "program.steps[0]", "no branch '3'"),
        ([{"type": "fork"}, {"type": "join", "branches": ["0", "0"]}], "program.steps[1]", "different branches"),
        ([{"type": "keep", "name": "a", "index": 0}], "program.steps[0]", "several answers"),
    ],
)
def test_mistakes_are_named_before_anything_runs(steps: list[Any], param: str | None, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replay(read_graph({"version": 1, "steps": steps}), WrittenState(Writing()))  # type: ignore[arg-type]
    assert says in caught.value.message
    assert param is None or caught.value.param.startswith(param.removesuffix("[0]"))


@pytest.mark.parametrize("version", [0, 2, None, "1", 1.5])
def test_other_versions_are_refused(version: Any) -> None:
    with pytest.raises(InvalidRequest, match="version"):
        read_graph({"version": version, "steps": [TURN]})


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="1000000 at most"):
        read_graph({"version": 1, "steps": [TURN | {"parts": "x" * 1_000_001}]})


def test_the_least_program_is_short() -> None:
    steps = [TURN, answer(max_tokens=3)]
    assert isinstance(read_graph({"version": 1, "steps": steps}), ProgramGraph)
