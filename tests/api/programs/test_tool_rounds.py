"""Rounds of tool calls through the real edge, on recited answers: mistakes, calls at once, limits."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hemiola as hm
from hemiola.core.errors import InvalidRequest
from hemiola.tests.api.http.text_rig import Answer, RecitingCalls, write_model


@pytest.fixture
def reciting(tmp_path: Path) -> Iterator[RecitingCalls]:
    calls = RecitingCalls(write_model(tmp_path / "model"))
    yield calls
    calls.close()


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@hm.tool
def divide(a: float, b: float) -> float:
    """Divides a by b."""
    return a / b


def run_with(calls: RecitingCalls, answers: list[str], **options: Any) -> hm.Run:
    @hm.program
    def ask(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.gen("reply", **{"tools": [divide], **options})

    calls.reciter.answers = [Answer(text) for text in answers]
    return ask.on(calls).run()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (call("divide", '{"a": 6, "b": 3}'), "2.0"),
        (call("divide", '{"a": 6, "b": 0}'), "Error: float division by zero"),
        (call("divide", '{"a": 6}'), "Error: divide needs an argument 'b'."),
        (call("divide", '{"a": 6, "b": 1, "c": 2}'), "Error: divide has no argument 'c'. It has: a, b."),
        (call("divide", '{"a": "six", "b": 1}'), "Error: Expected `float`, got `str`"),
        (call("multiply", '{"a": 6, "b": 1}'), "Error: no function is called multiply. There are: divide."),
    ],
)
def test_what_becomes_of_a_call_is_a_message_that_the_model_reads(
    reciting: RecitingCalls, asked: str, told: str
) -> None:
    run = run_with(reciting, [asked, "I see."]).raise_for_errors()
    _, said, result, reply = run.messages()
    assert result == {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": told}
    assert reply["content"] == run["reply"] == "I see."
    prompt = reciting.front.tokenizer.decode(reciting.reciter.requests[1].token_ids, skip_special_tokens=False)
    assert f"<|im_start|>tool\n{told}<|im_end|>" in prompt and asked in prompt


def test_arguments_that_are_no_json_are_told_too(reciting: RecitingCalls) -> None:
    run = run_with(reciting, [call("divide", '{"a": six, "b": 1}'), "I see."]).raise_for_errors()
    assert run.messages()[2]["content"].startswith("Error: JSON is malformed")


def test_calls_of_one_answer_run_at_once_and_keep_their_order(reciting: RecitingCalls) -> None:
    both = threading.Barrier(2, timeout=20)

    @hm.tool
    def meet(name: str) -> str:
        """Waits for the other one."""
        both.wait()
        return f"{name} was there"

    asked = call("meet", '{"name": "Ada"}') + "\n" + call("meet", '{"name": "Bo"}')
    run = run_with(reciting, [asked, "Good."], tools=[meet]).raise_for_errors()
    _, said, *results, _ = run.messages()
    assert [each["content"] for each in results] == ["Ada was there", "Bo was there"]
    assert [each["tool_call_id"] for each in results] == [each["id"] for each in said["tool_calls"]]


@pytest.mark.parametrize("max_rounds", [1, 3])
def test_a_model_that_goes_on_calling_is_stopped(reciting: RecitingCalls, max_rounds: int) -> None:
    run = run_with(reciting, [call("divide", '{"a": 6, "b": 3}')], max_rounds=max_rounds)
    (error,) = run.errors
    assert len(reciting.reciter.requests) == max_rounds + 1 == len(error.request_ids)
    assert f"'reply' called tools more than {max_rounds} times" in str(error) and "test_tool_rounds.py:" in str(error)


@dataclass
class Place:
    city: str
    floor: int = 0


def test_schemas_of_structured_arguments_are_whole(reciting: RecitingCalls) -> None:
    """References of a schema lead to the schema's own root."""

    @hm.tool
    def find(place: Place, others: list[Place]) -> str:
        """Finds it."""
        return f"{place.city} {len(others)}"

    parameters = find.schema["function"]["parameters"]
    assert parameters["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert parameters["properties"]["others"]["items"] == {"$ref": "#/$defs/Place"}
    assert parameters["$defs"]["Place"]["properties"]["floor"] == {"type": "integer", "default": 0}
    asked = call("find", json.dumps({"place": {"city": "Rome"}, "others": [{"city": "Bonn", "floor": 1}]}))
    run = run_with(reciting, [asked, "Good."], tools=[find]).raise_for_errors()
    assert run.messages()[2]["content"] == "Rome 1"


def test_types_that_json_cannot_give_are_refused() -> None:
    def show(picture: threading.Lock) -> None:
        pass

    with pytest.raises(InvalidRequest, match="'picture' of show"):
        hm.tool(show)
