"""POST /v1/programs over a backend that recites: events, failures, terms, mistakes, and clients that leave."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hemiola.api.http.program_asks import PROGRAM_FIELDS
from hemiola.api.http.settings import Settings
from hemiola.core.errors import Overloaded

from .text_rig import Answer, Reciter, RecitingCalls, served, wait_until

PATH = "/v1/programs"
ASK = {"type": "turn", "role": "user", "parts": "Hi!"}


def says(name: str, branch: str = "", **options: Any) -> dict[str, Any]:
    parts = [{"type": "gen", "name": name, "max_tokens": 40} | options]
    return {"type": "turn", "branch": branch, "role": "assistant", "parts": parts}


def body_of(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"program": {"version": 1, "steps": steps}} | fields


FORKED = (ASK, says("a"), {"type": "fork", "n": 2}, says("b", "0"), says("c", "1"), says("d", "1", model="org/tiny"))


def events_of(http: httpx.Client, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    response = http.post(PATH, json=body | {"stream": True})
    assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
    frames = [frame.split("\n") for frame in response.text.split("\n\n") if frame and not frame.startswith(":")]
    return [(event.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for event, data in frames]


def test_events_tell_all_of_it_in_order(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("The fox."), Answer("One."), Answer("Two.")]
    events = events_of(http, body_of(ASK, says("a"), says("b", n=2)))
    assert [name for name, data in events if name != "node.text"] == [
        "program.started",
        "node.started",
        "node.finished",
        "node.started",
        "node.finished",
        "program.finished",
    ]
    assert all(data["type"] == name for name, data in events)
    texts = [(data["node"], data["index"]) for name, data in events if name == "node.text" for _ in (1,)]
    assert {(0, 0), (1, 0), (1, 1)} == set(texts)
    first = "".join(data["text"] for name, data in events if name == "node.text" and data["node"] == 0)
    ends = {data["node"]: data for name, data in events if name == "node.finished"}
    assert first == ends[0]["value"] == ends[0]["text"] == "The fox."
    assert sorted(ends[1]["value"]) == ["One.", "Two."] and ends[1]["text"] is None
    last = events[-1][1]
    assert last["status"] == "completed" and last["id"] == events[0][1]["id"]
    assert last["variables"]["a"] == "The fox." and last["usage"]["completion_tokens"] > 0
    assert reciter.requests[0].id == f"{last['id']}-0"


def test_requests_carry_the_programs_terms_and_what_waits_for_them(calls: RecitingCalls, reciter: Reciter) -> None:
    settings = Settings(api_keys=("k",))
    terms = {"priority": -2, "service_class": "background", "deadline_s": 50}
    with served(calls, settings) as address, httpx.Client(base_url=address, timeout=20) as http:
        response = http.post(PATH, json=body_of(*FORKED, **terms), headers={"authorization": "Bearer k"})
        assert response.status_code == 200
    a, *others = sorted(reciter.requests, key=lambda request: request.id)
    assert [request.id.rpartition("-")[2] for request in (a, *others)] == ["0", "1", "2", "3"]
    assert {(r.priority, r.service_class, r.tenant) for r in reciter.requests} == {(-2, "background", a.tenant)}
    assert a.tenant != "default" and all(0 < (r.deadline_s or 0) <= 50 for r in reciter.requests)
    shares = [r.program for r in (a, *others)]
    assert all(share is not None and share.id == response.json()["id"] for share in shares)
    behind = [r.behind_s for r in (a, *others)]
    assert behind[0] > behind[2] > 0 == behind[1] == behind[3], "a, then c, for d waits for both"
    assert [share is not None and share.keeps_prefix for share in shares] == [True, True, True, False]


def test_a_failed_node_has_its_error_and_others_go_on(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("no number"), Answer("fine")]
    steps: tuple[dict[str, Any], ...] = (ASK, says("n", read="int"), {"type": "fork"}, says("needs", "0"))
    events = events_of(http, body_of(*steps))
    failed = [data for name, data in events if name == "node.failed"]
    assert [(data["name"], data["because"], data["error"]["code"]) for data in failed] == [
        ("n", None, "answer_unfit"),
        ("needs", 0, "answer_unfit"),
    ]
    assert "no number" in failed[0]["error"]["message"] and events[-1][1]["status"] == "incomplete"


def test_if_nothing_came_of_it_the_answer_has_the_first_failures_status(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("x", failure="step_failed")]
    response = http.post(PATH, json=body_of(*FORKED))
    assert response.status_code == 500 and "/srv" not in response.text
    reciter.refusal = Overloaded("Full.")
    response = http.post(PATH, json=body_of(*FORKED))
    assert response.status_code == 503 and response.headers["retry-after"]


def test_a_part_of_it_is_an_answer_with_a_status(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer("fine"), Answer("x", failure="step_failed")]
    body = http.post(PATH, json=body_of(ASK, says("a"), says("b"))).json()
    assert body["status"] == "incomplete" and body["variables"] == {"a": "fine"}
    assert [node["type"] for node in body["nodes"]] == ["node.finished", "node.failed"]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("pause_after", [0, 3])
def test_a_client_that_leaves_ends_all_nodes(
    http: httpx.Client, reciter: Reciter, calls: RecitingCalls, is_streamed: bool, pause_after: int
) -> None:
    reciter.pause_after = pause_after
    steps: tuple[dict[str, Any], ...] = (
        ASK,
        {"type": "fork", "n": 3},
        *(says("a", str(i)) for i in range(3)),
        says("later", "0"),
    )
    with pytest.raises(httpx.ReadTimeout):
        http.post(PATH, json=body_of(*steps, stream=is_streamed), timeout=0.5)
    wait_until(lambda: len(reciter.aborted) == 3)
    wait_until(lambda: not calls._streams)
    assert len(reciter.requests) == 3, "What waited was never asked for."


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_time_limit_ends_all_nodes_and_is_told(
    http: httpx.Client, reciter: Reciter, is_streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reciter.pause_after = 2
    body = body_of(*FORKED, timeout_s=0.3)
    if is_streamed:
        name, error = events_of(http, body)[-1]
        assert name == "error"
    else:
        response = http.post(PATH, json=body)
        assert response.status_code == 504
        error = response.json()
    assert error["error"]["code"] == "timeout"
    wait_until(lambda: len(reciter.aborted) == 1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "It is the client's own limit."


def test_a_model_that_is_not_served_is_told_with_the_step(http: httpx.Client) -> None:
    response = http.post(PATH, json=body_of(ASK, says("a", model="none")))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (404, "model_not_found")
    assert error["message"].startswith("'a' of program.steps[1]: The model 'none'")


@pytest.mark.parametrize(("condition", "status"), [("starting", 503), ("draining", 503), ("dead", 503)])
def test_none_begins_while_requests_are_not_taken(
    http: httpx.Client, calls: RecitingCalls, condition: Any, status: int
) -> None:
    calls.condition_now = condition
    response = http.post(PATH, json=body_of(*FORKED, stream=True))
    assert (response.status_code, response.json()["error"]["code"]) == (status, "server_overloaded")


@pytest.mark.parametrize(
    ("body", "param", "says_what"),
    [
        ({}, "program", "Missing"),
        ({"program": []}, "program", "object"),
        (body_of(ASK), "program.steps", "1 node or more"),
        (body_of(ASK, says("a", temperature=3)), "program.steps[1].temperature", "<= 2"),
        (body_of(ASK, says("a", max_tokens=0)), "program.steps[1].max_tokens", ">= 1"),
        (body_of(ASK, says("a", read="int", retries=17)), "program.steps[1].retries", "16 at most"),
        (body_of(ASK, says("a", n=0)), "program.steps[1].n", "1 or more"),
        (body_of(ASK, says("a", stop="")), "program.steps[1].stop", "none empty"),
        (body_of(ASK, says("a"), tools=[{}]), "tools", "not supported"),
        (body_of(ASK, says("a"), model="m"), "model", "Each step names its own"),
        (body_of(ASK, says("a"), deadline_s=-1), "deadline_s", ">= 0"),
        (body_of(ASK, says("a"), timeout_s="1"), "timeout_s", "number"),
        (body_of(ASK, says("a"), service_class="royal"), "service_class", "interactive"),
        (body_of(ASK, says("a"), video_format="gif"), "video_format", "'mp4', 'png'"),
        (body_of({"type": "image", "name": "p", "prompt": "x"}), "program.steps[0].model", "makes an image"),
    ],
)
def test_mistakes_are_told_by_field_before_anything_runs(
    http: httpx.Client, reciter: Reciter, body: Any, param: str, says_what: str
) -> None:
    response = http.post(PATH, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert says_what in error["message"] and reciter.requests == []


def test_models_go_by_their_aliases_and_unknown_fields_may_be_refused(calls: RecitingCalls, reciter: Reciter) -> None:
    settings = Settings(aliases={"gpt": "org/tiny"}, strict_params=True)
    with served(calls, settings) as address, httpx.Client(base_url=address, timeout=20) as http:
        assert http.post(PATH, json=body_of(ASK, says("a", model="gpt"))).status_code == 200
        assert http.post(PATH, json=body_of(ASK, says("a", model="gpt5"))).status_code == 404
        assert http.post(PATH, json=body_of(ASK, says("a"), odd=1)).json()["error"]["param"] == "odd"
    assert len(reciter.requests) == 1


def test_large_numbers_come_back_whole(http: httpx.Client, reciter: Reciter) -> None:
    reciter.answers = [Answer(str(10**30))]
    body = http.post(PATH, json=body_of(ASK, says("a", read="int"))).json()
    assert body["variables"]["a"] == 10**30


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False)
)
odd = st.recursive(scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3))
short = st.text(max_size=3)
few = st.integers(-1, 3)
branches = st.sampled_from(["", "0", "1"])
references = st.fixed_dictionaries(
    {"type": st.sampled_from(["value", "said"]), "node": few},
    optional={"path": st.lists(few | short, max_size=2), "choice": few | odd},
)
nodes = st.fixed_dictionaries(
    {"type": st.sampled_from(["gen", "select"]), "name": short},
    optional={"n": few, "choices": st.lists(short, max_size=3) | odd, "read": odd},
)
parts = short | st.lists(short | references | nodes | odd, max_size=3)


def step(kind: str, needed: dict[str, Any], **optional: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"type": st.just(kind)} | needed, optional={"branch": branches} | optional)


steps = st.one_of(
    step("turn", {"role": st.sampled_from(["user", "assistant", "", "system"])}, parts=parts),
    step("fork", {}, n=few),
    step("join", {"branches": st.lists(branches, max_size=2)}, how=st.sampled_from(["gather", "concatenate"]) | odd),
    step("keep", {"name": short, "index": few | references}),
    step("let", {"name": short, "value": references}),
    odd,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=7), st.dictionaries(st.sampled_from(sorted(PROGRAM_FIELDS.honoured)), odd, max_size=2))
def test_whatever_is_sent_it_is_never_a_mistake_of_the_server(
    http: httpx.Client, program: list[Any], fields: dict[str, Any]
) -> None:
    response = http.post(PATH, json=body_of(ASK, says("a"), *program) | fields | {"stream": False})
    assert response.status_code in (200, 400, 404, 504), response.text
