"""The engine's thread and streams, on simulated runners."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hemiola.api.loop import EngineLoop
from hemiola.api.stream import Stream
from hemiola.core.errors import EngineDied, RequestAborted
from hemiola.core.events import Event, Failed, Finished, Token
from hemiola.core.request import Sampling, TextRequest
from hemiola.scheduler.scheduler import Scheduler
from hemiola.scheduler.simulator import Simulation


class Loop:
    """A loop over a simulation, with streams."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream[int]] = {}
        self.num_idle = 0
        self.loop = EngineLoop(self._build, self._deliver, on_idle=self._idle)
        self.loop.start()

    def _build(self, emit: Callable[[Event], None]) -> Scheduler:
        return Simulation(emit=emit).scheduler

    def _deliver(self, event: Event) -> None:
        self.streams[event.request_id].push(event)

    def _idle(self) -> None:
        self.num_idle += 1

    def ask(self, name: str, num_tokens: int) -> Stream[int]:
        stream = Stream([name], lambda events: sum(isinstance(e, Token) for e in events), self.loop.abort)
        self.streams[name] = stream
        self.loop.submit(TextRequest(id=name, model="text", token_ids=(1, 2), sampling=Sampling(max_tokens=num_tokens)))
        return stream


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.loop.stop()


def test_results_and_events_from_another_thread(loop: Loop) -> None:
    streams = [loop.ask(f"r{i}", 10 + i) for i in range(5)]
    assert [stream.result(timeout=30) for stream in streams] == [10, 11, 12, 13, 14]
    events = list(streams[0])
    assert len(events) == 11 and isinstance(events[-1], Finished)


async def test_events_and_results_in_coroutines(loop: Loop) -> None:
    stream, other = loop.ask("a", 50), loop.ask("b", 20)
    events = [event async for event in stream]
    assert len(events) == 51 and isinstance(events[-1], Finished)
    assert await asyncio.wait_for(other.aresult(), 30) == 20


def test_cancelling_ends_a_request_and_raises(loop: Loop) -> None:
    stream = loop.ask("long", 10**6)
    next(iter(stream))
    stream.cancel()
    with pytest.raises(RequestAborted):
        stream.result(timeout=30)
    assert sum(isinstance(event, Finished | Failed) for event in stream) == 1


async def test_a_cancelled_coroutine_cancels_its_requests(loop: Loop) -> None:
    stream = loop.ask("long", 10**6)
    task = asyncio.create_task(stream.aresult())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(RequestAborted):
        await asyncio.wait_for(stream.aresult(), 30)


def test_an_error_outside_any_step_fails_every_request_loudly(loop: Loop) -> None:
    stream = loop.ask("long", 10**6)
    next(iter(stream))

    def break_it(scheduler: Scheduler) -> None:
        raise RuntimeError("the loop is broken")

    loop.loop.call(break_it)
    with pytest.raises(EngineDied, match="the loop is broken"):
        stream.result(timeout=30)
    with pytest.raises(EngineDied):
        loop.ask("late", 1)


def test_stopping_aborts_what_runs() -> None:
    loop = Loop()
    stream = loop.ask("long", 10**6)
    next(iter(stream))
    loop.loop.stop()
    with pytest.raises(RequestAborted):
        stream.result(timeout=30)


def test_idleness_is_noticed_once_per_burst(loop: Loop) -> None:
    loop.ask("a", 5).result(timeout=30)
    deadline = time.monotonic() + 10
    while not loop.num_idle and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert loop.num_idle == 1
    assert threading.active_count() < 20


def test_a_timeout_leaves_the_request_running(loop: Loop) -> None:
    stream = loop.ask("long", 10**6)
    with pytest.raises(TimeoutError):
        stream.result(timeout=0.05)
    assert not stream.is_done


def test_a_request_that_came_just_before_the_stop_ends_too() -> None:
    """The stop used to leave what was still in the inbox without any final event."""
    loop = Loop()
    may_go_on = threading.Event()
    loop.loop.call(lambda scheduler: may_go_on.wait(30))
    stream = loop.ask("late", 5)
    loop.loop.stop(timeout=0)
    may_go_on.set()
    with pytest.raises(RequestAborted):
        stream.result(timeout=30)
