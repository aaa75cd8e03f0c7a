"""When nodes are asked for, and what failures, time limits and cancellation do, on scripted answers."""

import asyncio
import threading
import time
from typing import Any

import pytest

import hemiola as hm
from hemiola.core.errors import InvalidRequest, Overloaded, RequestAborted
from hemiola.tests.api.programs.scripted import ScriptedCalls, _events


def never(kind: str, prompt: Any, options: dict[str, Any]) -> None:
    return None


@hm.program
def three(s: hm.State) -> None:
    """Three branches; the middle one is about a dragon."""
    s += hm.user("?")
    for animal, branch in zip(("heron", "dragon", "fox"), s.fork(3), strict=True):
        branch += hm.user(animal)
        branch += hm.assistant(hm.gen("line"))
        branch += hm.gen_image("picture", branch["line"])


def no_dragons(kind: str, prompt: Any, options: dict[str, Any]) -> str | Exception:
    return RuntimeError("no dragons") if "dragon" in str(prompt) else "fine"


def test_a_failure_fails_what_needs_it_and_nothing_else() -> None:
    calls = ScriptedCalls(no_dragons)
    run = three.on(calls).run()
    assert [run.forks[i]["line"] for i in (0, 2)] == ["fine", "fine"]
    assert all(run.forks[i]["picture"].images for i in (0, 2))
    assert [error.name for error in run.errors] == ["line", "picture"]
    assert len(calls.prompts("image")) == 2
    with pytest.raises(hm.NodeFailed):
        run.forks[1]["picture"]
    with pytest.raises(hm.NodeFailed):
        run.raise_for_errors()


def test_errors_name_the_line_and_the_request() -> None:
    run = three.on(ScriptedCalls(no_dragons)).run()
    line, picture = run.errors
    first_line = three._function.__code__.co_firstlineno
    assert (line.place.line, picture.place.line) == (first_line + 6, first_line + 7)
    assert line.place.file == __file__ and line.code == "step_failed"
    assert line.request_ids == (f"{run.id}-{run.nodes.index(_node(run, 'line', '1'))}",)
    assert str(line) == f"'line' (test_execution.py:{first_line + 6}, request {line.request_ids[0]}) failed: no dragons"
    assert picture.request_ids == () and picture.__cause__ is line


def _node(run: hm.Run, name: str, branch: str) -> Any:
    return next(node for node in run.nodes if (node.name, node.branch) == (name, branch))


def test_a_program_that_uses_a_failed_value_raises_and_leaves_nothing_running() -> None:
    @hm.program
    def uses(s: hm.State) -> None:
        s += hm.gen_image("slow", "a hill")
        s += hm.user("a dragon")
        s += hm.assistant(hm.gen("line"))
        str(s["line"])

    calls = ScriptedCalls(lambda kind, prompt, o: None if kind == "image" else no_dragons(kind, prompt, o))
    with pytest.raises(hm.NodeFailed, match="no dragons"):
        uses.on(calls).run()
    assert [asked.was_cancelled for asked in calls.asked] == [True, False]


async def test_nodes_that_need_nothing_are_asked_for_together() -> None:
    @hm.program
    def independent(s: hm.State) -> None:
        for i in range(5):
            s += hm.gen_image(f"p{i}", f"picture {i}")

    calls = ScriptedCalls(never)
    task = asyncio.create_task(independent.on(calls).arun())
    await calls.has_been_asked(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(asked.was_cancelled for asked in calls.asked)


async def test_cancelling_ends_running_and_waiting_nodes_and_the_function_that_waits() -> None:
    ended: list[BaseException] = []

    @hm.program
    def waits(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(hm.gen("line"))
        s += hm.gen_image("picture", s["line"])
        try:
            str(s["picture"])
        except BaseException as error:
            ended.append(error)
            with pytest.raises(RequestAborted):
                s += hm.gen_image("late", "a hill")
            raise

    calls = ScriptedCalls(never)
    task = asyncio.create_task(waits.on(calls).arun())
    await calls.has_been_asked(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        while not ended:
            await asyncio.sleep(0.005)
    assert isinstance(ended[0], RequestAborted)
    assert len(calls.asked) == 1 and calls.asked[0].was_cancelled


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_time_limit_cancels_everything(is_coroutine: bool) -> None:
    @hm.program
    def plain(s: hm.State) -> None:
        s += hm.gen_image("picture", "a hill")
        str(s["picture"])

    @hm.program
    async def coroutine(s: hm.State) -> None:
        s += hm.gen_image("picture", "a hill")
        await s["picture"]

    calls = ScriptedCalls(never)
    started_s = time.monotonic()
    with pytest.raises(TimeoutError):
        (coroutine if is_coroutine else plain).on(calls, timeout_s=0.1).run()
    assert time.monotonic() - started_s < 5
    assert [asked.was_cancelled for asked in calls.asked] == [True]


def test_calls_carry_the_programs_terms_and_what_is_left_of_its_deadline() -> None:
    @hm.program
    def later(s: hm.State) -> None:
        s += hm.user("?")
        s += hm.assistant(hm.gen("a"))
        str(s["a"])
        time.sleep(0.05)
        s += hm.gen_image("b", "a hill")

    calls = ScriptedCalls(lambda *_: "fine")
    run = later.on(calls, terms=hm.CallTerms(priority=-3, tenant="t", deadline_s=10.0)).run()
    first, second = (asked.options["terms"] for asked in calls.asked)
    assert [first.id, second.id] == [f"{run.id}-0", f"{run.id}-1"]
    assert (second.priority, second.tenant) == (-3, "t")
    assert first.deadline_s <= 10.0 and second.deadline_s <= first.deadline_s - 0.05


def test_news_come_while_it_runs_and_then_the_run() -> None:
    stream = three.on(ScriptedCalls(no_dragons)).stream()
    events = list(stream)
    of_fox = [(event.kind, event.name, event.text) for event in events if event.branch == "2"]
    assert of_fox[:3] == [("started", "line", ""), ("text", "line", "fine"), ("finished", "line", "")]
    assert [event.name for event in events if event.kind == "failed"] == ["line", "picture"]
    assert stream.run.forks[2]["line"] == "fine"


async def test_leaving_a_stream_early_cancels_the_program() -> None:
    calls = ScriptedCalls(lambda kind, *_: None if kind == "image" else "fine")
    events = aiter(three.on(calls).stream())
    async for event in events:
        if (event.kind, event.name) == ("started", "picture"):
            break
    await events.aclose()  # type: ignore[attr-defined]
    pictures = [asked.was_cancelled for asked in calls.asked if asked.kind == "image"]
    assert pictures and all(pictures)
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("last", [("started", "picture"), ("started", "line")])
def test_leaving_for_early_cancels_the_program_too(last: tuple[str, str]) -> None:
    calls = ScriptedCalls(lambda kind, *_: None if kind == "image" else "fine")
    stream = three.on(calls).stream()
    for event in stream:
        if (event.kind, event.name) == last:
            break
    assert all(asked.was_cancelled for asked in calls.asked if asked.kind == "image")
    with pytest.raises(InvalidRequest, match="There is no run: read all events"):
        _ = stream.run


def test_a_stream_is_read_once() -> None:
    calls = ScriptedCalls(no_dragons)
    stream = three.on(calls).stream()
    assert list(stream)
    num_asked = len(calls.asked)
    with pytest.raises(InvalidRequest, match="read already"):
        list(stream)
    assert len(calls.asked) == num_asked and stream.run.errors


def test_a_stream_of_a_failing_program_raises_at_its_end() -> None:
    @hm.program
    def broken(s: hm.State) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(broken.on(ScriptedCalls(never)).stream())


class FullQueue(ScriptedCalls):
    """Takes so many calls at once, as a server with a queue does."""

    def __init__(self, room: int) -> None:
        super().__init__(never)
        self.room = room
        self.num_refused = 0

    def _ask(self, *args: Any) -> Any:
        if sum(not asked.stream.is_done for asked in self.asked) >= self.room:
            self.num_refused += 1
            raise Overloaded("The queue is full.")
        return super()._ask(*args)


async def test_a_queue_that_is_full_of_its_own_nodes_is_waited_for() -> None:
    @hm.program
    def wide(s: hm.State) -> None:
        for i in range(5):
            s += hm.gen_image(f"p{i}", "a hill")

    calls = FullQueue(room=2)
    task = asyncio.create_task(wide.on(calls).arun())
    for num_asked in (2, 4, 5):
        await calls.has_been_asked(num_asked)
        for asked in calls.asked:
            if not asked.stream.is_done:
                for event in _events("image", asked.stream.request_ids[0], ""):
                    asked.stream.push(event)
    run = await task
    assert run.errors == [] and calls.num_refused >= 3
    ids = [asked.options["terms"].id for asked in calls.asked]
    assert len(set(ids)) == 5


def test_a_queue_that_is_full_of_others_fails_the_node() -> None:
    run = three.on(FullQueue(room=0)).run()
    assert [error.code for error in run.errors] == ["server_overloaded"] * 6


async def test_a_long_prompt_holds_nobody_up_and_can_be_cancelled_while_it_is_read() -> None:
    @hm.program
    def long(s: hm.State) -> None:
        s += hm.gen_image("p", "a hill " * 10_000)

    reading, read = threading.Event(), threading.Event()

    class Slow(ScriptedCalls):
        def _ask(self, *args: Any) -> Any:
            reading.set()
            read.wait(5)
            return super()._ask(*args)

    calls = Slow(never)
    task = asyncio.create_task(long.on(calls).arun())
    async with asyncio.timeout(5):
        while not reading.is_set():
            await asyncio.sleep(0.005)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, read.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [asked.was_cancelled for asked in calls.asked] == [True]
