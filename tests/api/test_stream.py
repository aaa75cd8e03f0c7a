"""Streams under threads and event loops: nothing is lost, nobody is woken for nothing, loops that end do no harm."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from hemiola.api.stream import Stream
from hemiola.api.wakeups import Sleeper, Wakeups
from hemiola.core.errors import EngineDied, StepFailed
from hemiola.core.events import Event, Failed, Finished, Token

NUM_TOKENS = 200


def stream_of(*ids: str, wakeups: Wakeups | None = None) -> Stream[int]:
    return Stream(ids, _num_tokens, lambda request_id: None, wakeups=wakeups)


def _num_tokens(events: Sequence[Event]) -> int:
    return sum(isinstance(event, Token) for event in events)


def write(stream: Stream[int], pause_s: float = 0.0) -> threading.Thread:
    """Fills it from a thread, as the engine does."""

    def run() -> None:
        for i in range(NUM_TOKENS):
            stream.push(Token(stream.request_ids[0], i))
            if pause_s:
                time.sleep(pause_s)
        stream.push(Finished(stream.request_ids[0], "stop"))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


async def test_batches_hold_every_event_once_and_in_order() -> None:
    stream = stream_of("a")
    writer = write(stream, 0.0005)
    batches = [batch async for batch in stream.batches()]
    writer.join()
    tokens = [event.token_id for batch in batches for event in batch if isinstance(event, Token)]
    assert tokens == list(range(NUM_TOKENS)) and all(batches)
    assert isinstance(batches[-1][-1], Finished)


async def test_what_piled_up_comes_in_one_batch() -> None:
    stream = stream_of("a")
    write(stream).join()
    assert [len(batch) async for batch in stream.batches()] == [NUM_TOKENS + 1]


async def test_iteration_goes_on_where_it_was_left() -> None:
    stream = stream_of("a")
    write(stream).join()
    async for event in stream:
        assert event == Token("a", 0)
        break
    rest = [event async for event in stream]
    assert rest[0] == Token("a", 1) and len(rest) == NUM_TOKENS


async def test_who_waits_for_the_result_sleeps_through_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[object] = []
    wake = Wakeups.wake

    def watched(self: Wakeups, sleeper: Sleeper) -> None:
        woken.append(sleeper)
        wake(self, sleeper)

    monkeypatch.setattr(Wakeups, "wake", watched)
    stream = stream_of("a")
    result = asyncio.ensure_future(stream.aresult())
    await asyncio.sleep(0)
    writer = write(stream)
    assert await result == NUM_TOKENS
    writer.join()
    assert len(woken) == 1


async def test_a_burst_over_many_streams_enters_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wakeups = Wakeups()
    streams = [stream_of(str(i), wakeups=wakeups) for i in range(16)]
    readers = [asyncio.ensure_future(stream.news()) for stream in streams]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    entered: list[object] = []
    call = loop.call_soon_threadsafe

    def watched(*args: Any) -> Any:
        entered.append(args)
        return call(*args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", watched)
    for stream in streams:  # on the loop's own thread, so that it cannot run in between
        stream.push(Token(stream.request_ids[0], 1))
    await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert len(entered) == 1


async def test_a_failure_is_known_at_once_and_raised_at_the_end() -> None:
    stream = stream_of("a", "b")
    assert stream.failure is None
    stream.push(Failed("b", "step_failed", "out of luck"))
    assert isinstance(stream.failure, StepFailed)
    with pytest.raises(StepFailed, match="out of luck"):
        await stream.aresult()


def test_a_loop_that_ended_does_not_stop_the_engine() -> None:
    """Pushing to a stream whose reader's loop was closed used to raise in the engine's thread."""
    stream = stream_of("a")

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # says that the reader never ended, which is the point
    reader = loop.create_task(stream.news())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not reader.done()
    stream.push(Token("a", 1))
    stream.push(Finished("a", "stop"))
    assert stream.result() == 1


def test_cancelling_with_an_engine_that_is_gone_is_no_error() -> None:
    def cancel(request_id: str) -> None:
        raise EngineDied("The engine died.")

    Stream(["a"], _num_tokens, cancel).cancel()
