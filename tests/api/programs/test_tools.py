"""Tools: what the model is told of a function, what becomes of its calls, on the demo model and on scripted answers."""

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import hemiola as hm
from hemiola.core.errors import InvalidRequest

asked: list[str] = []


@hm.tool
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    asked.append(city)
    return json.dumps({"city": city, "weather": "sunny", "temperature": 21})


@hm.program
def weather(s: hm.State, city: str, max_rounds: int = 4) -> None:
    s += hm.user(f"What is the weather in {city}?")
    s += hm.assistant(hm.gen("reply", tools=[get_weather], max_rounds=max_rounds, max_tokens=60))
    s += hm.user("Thank you.")
    s += hm.assistant(hm.gen("end", max_tokens=30))


def test_the_model_calls_a_function_and_answers_with_what_it_gave(demo: hm.Engine) -> None:
    asked.clear()
    run = weather.on(demo).run("Paris").raise_for_errors()
    assert asked == ["Paris"]
    question, call, result, answer, thanks, _ = run.messages()
    by_hand = demo.chat([question], tools=[get_weather.schema], max_tokens=60)
    assert by_hand.tool_calls[0].arguments == call["tool_calls"][0]["function"]["arguments"]
    assert (result["role"], json.loads(result["content"])["weather"]) == ("tool", "sunny")
    assert answer == {"role": "assistant", "content": run["reply"]}
    assert run["reply"] == demo.chat([question, call, result], tools=[get_weather.schema], max_tokens=60).text
    assert run["end"] == demo.chat([question, call, result, answer, thanks], max_tokens=30).text
    assert len(run.nodes[0].request_ids) == 2 and len(set(run.nodes[0].request_ids)) == 2


def test_calls_without_end_fail_the_node(demo: hm.Engine) -> None:
    class Caller:
        """Calls the function whatever it is told."""

        def __init__(self, engine: Any) -> None:
            self._engine = engine

        def stream_chat(self, messages: Any, **options: Any) -> Any:
            return self._engine.stream_chat(messages[:1], **options)

    run = weather.on(Caller(demo)).run("Rome", max_rounds=2)  # type: ignore[arg-type]
    assert "more than 2 times" in str(run.errors[0])
    assert [error.name for error in run.errors] == ["reply", "end"]


def test_a_functions_schema_is_read_from_its_annotations() -> None:
    @hm.tool
    def book(day: str, seats: int = 2, where: Literal["window", "aisle"] = "aisle") -> list[int]:
        """Books seats."""
        return [seats]

    function = book.schema["function"]
    assert (function["name"], function["description"]) == ("book", "Books seats.")
    assert function["parameters"]["properties"]["seats"] == {"type": "integer"}
    assert function["parameters"]["properties"]["where"] == {"enum": ["aisle", "window"]}
    assert function["parameters"]["required"] == ["day"]
    assert book("Monday", seats=3) == [3]


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ('{"a": 6, "b": 3}', "2.0"),
        ('{"a": 6}', "6.0"),
        ('{"a": 6, "b": 0}', "Error: float division by zero"),
        ('{"b": 1}', "Error: divide needs an argument 'a'."),
        ('{"a": 1, "c": 1}', "Error: divide has no argument 'c'. It has: a, b."),
        ('{"a": "x"}', "Error: Expected `float`, got `str`"),
        ("{", "Error: Input data was truncated"),
    ],
)
async def test_whatever_becomes_of_a_call_is_told(arguments: str, result: str) -> None:
    @hm.tool
    async def divide(a: float, b: float = 1.0) -> float:
        return a / b

    assert await divide.call(arguments) == result


class Odd:
    """Nothing that JSON could give."""


@dataclass
class Holder:
    odd: Odd


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Odd, ["the type Odd,"]),
        (list[Odd], ["the type list[", "Odd]"]),
        (Holder, ["the type Holder,", "Odd'> is not supported"]),
        (list[int] | set[int], ["list[int] | set[int]", "more than one array-like"]),
        (5, ["the type 5,"]),
    ],
)
def test_types_that_json_cannot_give_are_refused_by_the_arguments_name(hint: Any, words: list[str]) -> None:
    """The message was msgspec's own, of a `schema_hook` that no tool has."""

    def look(where: Any) -> None: ...

    look.__annotations__["where"] = hint
    with pytest.raises(InvalidRequest) as refused:
        hm.tool(look)
    said = refused.value.message
    assert refused.value.param == "where" and "'where' of look has" in said and "Allowed: str, int," in said
    assert all(word in said for word in words) and "hook" not in said and "\n" not in said


def test_annotations_that_are_no_types_are_refused() -> None:
    def look(where: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
        ...

    with pytest.raises(InvalidRequest, match=r"annotation of look is no type: name 'Nowhere'.*Allowed: str,"):
        hm.tool(look)


def test_functions_without_annotations_are_refused() -> None:
    def bare(x) -> None:  # type: ignore[no-untyped-def]
        pass

    def many(*x: int) -> None:
        pass

    for function in (bare, many):
        with pytest.raises(InvalidRequest, match="names and annotations"):
            hm.tool(function)
