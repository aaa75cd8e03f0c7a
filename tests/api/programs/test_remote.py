"""A program that is sent to a server as a whole gives, to the byte, what it gives in this process."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

import hemiola as hm
from hemiola.api.http.settings import Settings
from hemiola.core.errors import InvalidRequest, ModelNotFound
from hemiola.tests.api.http.text_rig import served, wait_until

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 16}


@pytest.fixture(scope="module")
def address(demo: hm.Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("data")
    with served(demo, Settings(data_dir=folder)) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[hm.Client]:
    with hm.Client(address) as client:
        yield client


def close_to(logprobs: Sequence[float]) -> Any:
    """Log probabilities of the same tokens, whatever shared their batches: texts, pictures and clips are equal to the
    byte, but products of other shapes add up in another order.

    Absolute, since near 0 a log probability is a small difference of large numbers: of the logits, some tens in size,
    and the logarithm of their sum, on which fp32 has steps of 2e-6 to 4e-6. Of scores from 0 to -32, beside up to 15
    chats, the largest difference from scores alone was 2.5e-5.
    """
    return pytest.approx(logprobs, rel=0, abs=1e-4)


@hm.program
def book(s: hm.State, animal: str) -> None:
    s += hm.user(f"Come up with a scene for a picture book about {animal}.")
    s += hm.assistant("Once, ", hm.gen("scene", **GREEDY))
    s.select("mood", ["calm", "funny"], scoring="sum")
    forks = s.fork(2)
    for i, fork in enumerate(forks):
        fork += hm.user(f"{i}. Now write an image prompt for this scene.")
        fork += hm.assistant(hm.gen("prompts", n=2, temperature=1.0, seed=i, max_tokens=12))
    forks.join()
    s += hm.gen_image("picture", s["prompts"][0][1], steps=1, seed=3, size=(64, 64))
    s += hm.gen_video("clip", "a " + s["mood"] + " " + animal, steps=1, seed=4, frames=5)


def test_a_remote_run_equals_one_in_this_process_to_the_byte(demo: hm.Engine, client: hm.Client) -> None:
    here = book.on(demo).run("a fox").raise_for_errors()
    there = book.on(client, remote=True).run("a fox").raise_for_errors()
    assert there.messages() == here.messages() and there.text() == here.text()
    assert there.names == here.names
    assert there["prompts"] == here["prompts"] and there["mood"] == here["mood"]
    assert [fork["prompts"] for fork in there.forks] == [fork["prompts"] for fork in here.forks]
    assert there["picture"].pictures == here["picture"].pictures
    assert (there["clip"].pixels, there["clip"].fps, there["clip"].seed) == (
        here["clip"].pixels,
        here["clip"].fps,
        here["clip"].seed,
    )
    mine, theirs = here.scores("mood"), there.scores("mood")
    assert [score.choice for score in theirs] == [score.choice for score in mine]
    for score, other in zip(mine, theirs, strict=True):
        assert other.logprobs == close_to(score.logprobs)
    for a, b in zip(here.nodes, there.nodes, strict=True):
        assert (a.kind, a.name, a.branch, a.place) == (b.kind, b.name, b.branch, b.place)
        assert a.usage is not None and b.usage is not None and a.usage.prompt_tokens == b.usage.prompt_tokens
    assert there.nodes[0].request_ids == (f"{there.id}-0",)
    trace = there.trace()
    assert all(node.submitted_s is not None and node.ended_s is not None for node in trace.nodes)
    assert trace.nodes[2].cached_tokens > 0


def test_news_come_as_they_come_in_this_process(client: hm.Client) -> None:
    stream = book.on(client, remote=True).stream("a toad")
    events = list(stream)
    scene = [event for event in events if event.name == "scene"]
    assert [scene[0].kind, scene[-1].kind] == ["started", "finished"]
    assert "".join(event.text for event in scene) == stream.run["scene"] == scene[-1].value
    assert any(event.kind == "progress" and event.name == "clip" for event in events)
    assert len([event for event in events if event.kind == "finished"]) == len(stream.run.nodes)


def test_one_round_trip_is_made_for_all_nodes(client: hm.Client, address: str) -> None:
    def num_requests() -> float:
        lines = httpx.get(f"{address}/metrics").text.splitlines()
        counts = [line for line in lines if line.startswith("hemiola_http_responses_total{") and "/metrics" not in line]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    before = num_requests()
    run = book.on(client, remote=True).run("an owl")
    assert len(run.nodes) == 6
    wait_until(lambda: num_requests() == before + 1)


def test_a_failed_node_fails_what_needs_it_alone(client: hm.Client) -> None:
    @hm.program
    def partly(s: hm.State) -> None:
        s += hm.user("Tell me of a fox.")
        for fork in s.fork(2):
            fork += hm.gen_json("data", **GREEDY)
            fork += hm.gen_image("picture", fork["data"]["x"], steps=1)
        s += hm.gen("reply", **GREEDY)

    run = partly.on(client, remote=True).run()
    assert run["reply"] and [error.name for error in run.errors] == ["data", "picture"] * 2
    data, picture = run.errors[:2]
    assert (data.code, picture.code) == ("answer_unfit", "answer_unfit") and picture.__cause__ is data
    assert f"'data' (test_remote.py:{data.place.line}, request {run.id}-0) failed: Expected a JSON" in str(data)


def test_mistakes_are_found_before_anything_runs(client: hm.Client, demo: hm.Engine) -> None:
    @hm.program
    def wrong(s: hm.State, options: Any = None) -> None:
        s += hm.user("?")
        s += hm.gen("a", **GREEDY)
        s += hm.gen_image("p", "a fox", **options or {})

    num_steps = len(demo.trace)
    with pytest.raises(InvalidRequest, match=r"'p' of program.steps\[2\].*multiples"):
        wrong.on(client, remote=True).run({"size": (63, 64)})
    with pytest.raises(InvalidRequest, match=r"n.*10"):
        wrong.on(client, remote=True).run({"n": 11})
    with pytest.raises(ModelNotFound, match="nobody"):
        wrong.on(client, remote=True).run({"model": "nobody"})
    with pytest.raises(InvalidRequest, match="remote"):
        wrong.on(demo, remote=True).run()
    assert len(demo.trace) == num_steps


@hm.program
def long(s: hm.State) -> None:
    s += hm.user("Tell me a story.")
    s += hm.gen_image("picture", "a fox", steps=100)
    for fork in s.fork(3):
        fork += hm.assistant(hm.gen("endless", max_tokens=1500, seed=1, temperature=1.0))
        fork += hm.gen_video("clip", fork["endless"])


async def test_after_cancelling_no_step_runs_on_the_server(client: hm.Client, demo: hm.Engine) -> None:
    begun = 0
    async with asyncio.timeout(60):
        events = aiter(long.on(client, remote=True).stream())
        async for event in events:
            begun += event.kind in ("text", "progress")
            if begun > 12:
                break
        await events.aclose()  # type: ignore[attr-defined]
    await stands_still(demo)


async def test_a_time_limit_ends_it_on_the_server(client: hm.Client, demo: hm.Engine) -> None:
    started_s = time.monotonic()
    with pytest.raises(TimeoutError):
        await long.on(client, remote=True, timeout_s=0.7).arun()
    assert time.monotonic() - started_s < 10
    await stands_still(demo)


async def stands_still(demo: hm.Engine) -> None:
    """Nothing of it runs soon after, nothing is held, and every byte has an owner."""
    async with asyncio.timeout(10):
        while demo._streams:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    num_steps = len(demo.trace)
    await asyncio.sleep(0.5)
    assert len(demo.trace) == num_steps
    demo._check()
    assert demo.composition is not None
    for runner in demo.composition.languages.values():
        prefixes = runner.kv_cache.prefixes
        assert prefixes is not None and prefixes.num_unused_tokens == prefixes.num_tokens
        assert not runner.kv_cache._kept and not runner._states


async def test_nothing_is_kept_once_programs_have_ended(client: hm.Client, demo: hm.Engine) -> None:
    await book.on(client, remote=True).arun("a crow")
    await stands_still(demo)


def test_choices_are_scored_over_http_as_in_this_process(client: hm.Client, demo: hm.Engine) -> None:
    messages = [{"role": "user", "content": "Tell me of a fox."}]
    asked: list[dict[str, Any]] = [
        {"messages": messages},
        {"messages": [*messages, {"role": "assistant", "content": "It is"}], "continue_final_message": True},
        {"prompt": "The fox is", "unconditional": True},
    ]
    for options in asked:
        here, there = demo.scores([" red", " blue"], **options), client.scores([" red", " blue"], **options)
        for mine, theirs in zip(here, there, strict=True):
            assert (theirs.choice, theirs.tokens) == (mine.choice, mine.tokens)
            assert theirs.logprobs == close_to(mine.logprobs)
            assert theirs.unconditional == close_to(mine.unconditional)
        assert there.model == here.model and there.usage.prompt_tokens == here.usage.prompt_tokens


def test_select_works_over_a_client_that_asks_node_by_node(client: hm.Client, demo: hm.Engine) -> None:
    @hm.program
    def picks(s: hm.State) -> None:
        s += hm.user("Tell me of a fox.")
        s += hm.gen("story", **GREEDY)
        s += hm.user("What is the mood?")
        s.select("mood", ["calm", "funny", "sad"])

    here, there = picks.on(demo).run().raise_for_errors(), picks.on(client).run().raise_for_errors()
    assert there["mood"] == here["mood"] and there.messages() == here.messages()


# Without our client


def test_a_program_can_be_sent_by_hand(address: str) -> None:
    program = {
        "version": 1,
        "steps": [
            {"type": "turn", "role": "user", "parts": "Tell me of a fox."},
            {"type": "fork", "n": 2},
            {"type": "turn", "branch": "0", "role": "assistant", "parts": [{"type": "gen", "name": "a"} | GREEDY]},
            {"type": "turn", "branch": "1", "role": "assistant", "parts": [{"type": "gen", "name": "a"} | GREEDY]},
            {"type": "join", "branches": ["0", "1"]},
            {"type": "image", "name": "p", "prompt": [{"type": "value", "node": 1}], "steps": 1, "size": "64x64"},
        ],
    }
    body = httpx.post(f"{address}/v1/programs", json={"program": program, "response_format": "url"}, timeout=60).json()
    assert (body["object"], body["status"]) == ("program", "completed")
    nodes = body["nodes"]
    assert [(node["type"], node["name"], node["branch"]) for node in nodes] == [
        ("node.finished", "a", "0"),
        ("node.finished", "a", "1"),
        ("node.finished", "p", ""),
    ]
    assert nodes[0]["value"] == nodes[1]["value"] and nodes[0]["usage"]["completion_tokens"] > 0
    assert body["variables"] == {"a": [nodes[0]["value"]] * 2, "p": {"node": 2}}
    picture = httpx.get(nodes[2]["images"][0]["url"])
    assert picture.status_code == 200 and picture.headers["content-type"] == "image/png"


def test_what_a_server_refuses_is_named_by_the_programs_line(client: hm.Client) -> None:
    @hm.program
    def mistaken(s: hm.State, model: str | None) -> None:
        s += hm.user("?")
        s += hm.gen("x", max_tokens=0 if model is None else 5, model=model)

    line = mistaken._function.__code__.co_firstlineno + 3
    with pytest.raises(InvalidRequest, match=rf"'x' of program.steps\[1\] \(test_remote.py:{line}\): .*'max_tokens'"):
        mistaken.on(client, remote=True).run(None)
    with pytest.raises(ModelNotFound, match=rf"program.steps\[1\] \(test_remote.py:{line}\): The model 'none'"):
        mistaken.on(client, remote=True).run("none")
