"""The front's side of an engine in another process, over one that computes nothing (`fake_engine.py`)."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hemiola.api.restarts import Restarts
from hemiola.api.stream import Stream
from hemiola.api.wire import Flush, GetStats, GetSteps
from hemiola.core.errors import CorruptWeights, EngineDied, HemiolaError, Overloaded, RequestAborted
from hemiola.core.events import Final, Finished, Image, Progress, Token
from hemiola.core.request import Sampling, TextRequest
from hemiola.tests.api.fake_engine import CAPACITY, FRAMES, MODULE
from hemiola.tests.api.processes import is_alive, wait_until
from hemiola.tests.api.remote_front import SOON_S, Front, opened

FRONT = f"""
import os, sys
from hemiola.api.remote import RemoteEngine
from hemiola.api.wire import EngineSpec
from hemiola.core.config import EngineConfig
engine = RemoteEngine(EngineSpec(models=("m",), config=EngineConfig()), print, module={MODULE!r})
engine.begin()
engine.wait_ready(60)
print(engine.pid, *engine._folders.all, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def front() -> Iterator[Front]:
    with opened() as made:
        yield made


# Events


def test_events_come_in_order_and_end_with_one_final(front: Front) -> None:
    streams = [front.text(5 + i) for i in range(4)]
    for i, stream in enumerate(streams):
        *tokens, final = stream.result(SOON_S)
        assert [token.token_id for token in tokens if isinstance(token, Token)] == list(range(1, 6 + i))
        assert isinstance(final, Finished)
    assert front.engine.num_unfinished == 0


def test_pictures_come_with_their_frames_and_leave_none(front: Front) -> None:
    streams = [front.picture(num_steps=3) for _ in range(3)]
    for stream in streams:
        *progress, image, final = stream.result(SOON_S)
        assert [event.done for event in progress if isinstance(event, Progress)] == [1, 2, 3]
        assert isinstance(image, Image) and image.pixels.data == FRAMES and isinstance(final, Finished)
    assert front.left_frames() == []


def test_a_hundred_streams_at_once_each_get_all_of_their_own(front: Front) -> None:
    lengths = [1 + i % 13 for i in range(100)]
    streams = [front.text(length) for length in lengths]
    for stream, length in zip(streams, lengths, strict=True):
        assert len(stream.result(SOON_S)) == length + 1


def test_aborting_and_finishing_reach_the_engine(front: Front) -> None:
    aborted, finished = front.text(), front.text()
    next(iter(aborted))
    aborted.cancel()
    front.engine.finish(finished.request_ids[0])
    with pytest.raises(RequestAborted):
        aborted.result(SOON_S)
    assert isinstance(finished.result(SOON_S)[-1], Finished)
    front.engine.abort("of nobody")  # has no effect


def test_frames_that_are_lost_fail_their_request_alone(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> bytes:
        raise FileNotFoundError("gone")

    monkeypatch.setattr("hemiola.api.incoming.take", lost)
    picture, text = front.picture(num_steps=1), front.text(50)
    with pytest.raises(HemiolaError, match="Frames were lost"):
        picture.result(SOON_S)
    assert sum(isinstance(event, Final) for event in picture) == 1
    assert len(text.result(SOON_S)) == 51


def test_questions_are_answered(front: Front) -> None:
    assert front.engine.ask(Flush).result(SOON_S) == 5
    assert front.engine.ask(GetStats).result(SOON_S).arena_bytes == {"free": 100}
    (step,) = front.engine.ask(lambda query: GetSteps(query, 3.5)).result(SOON_S)
    assert (step.start_s, step.work.rows) == (3.5, 1)


def test_figures_come_by_themselves(front: Front) -> None:
    front.text()
    assert wait_until(lambda: front.engine.stats is not None and front.engine.stats.running == {"m": 1})


# The queue


def test_who_comes_when_the_queue_is_full_is_refused() -> None:
    with opened(max_queue=2) as front:
        running = []
        for _ in range(CAPACITY):
            running.append(front.text())
            next(iter(running[-1]))
        queued = [front.text() for _ in range(2)]
        with pytest.raises(Overloaded, match="2 requests are waiting already; at most 2 may"):
            front.text()
        assert front.engine.num_unfinished == CAPACITY + 2
        assert not queued[0]._unread
        running[0].cancel()
        next(iter(queued[0]))
        assert wait_until(lambda: front.engine.num_queued == 1)
        front.text()


def test_what_is_on_its_way_counts_as_queued() -> None:
    with opened(max_queue=3) as front:
        assert front.engine.pid is not None
        os.kill(front.engine.pid, signal.SIGSTOP)  # takes nothing in
        streams = [front.text(5) for _ in range(3)]
        with pytest.raises(Overloaded):
            front.text(5)
        os.kill(front.engine.pid, signal.SIGCONT)
        for stream in streams:
            stream.result(SOON_S)
        assert wait_until(lambda: front.engine.num_queued == 0)
        front.text(5).result(SOON_S)


# Ends


def test_draining_lets_run_what_runs_and_takes_no_more(front: Front) -> None:
    stream = front.text(200)
    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(front.engine.drain(SOON_S)))
    thread.start()
    assert wait_until(lambda: not front.engine.is_ready)
    with pytest.raises(Overloaded, match="stopping"):
        front.text()
    assert len(stream.result(SOON_S)) == 201
    thread.join(SOON_S)
    assert drained == [True]


def test_what_does_not_end_in_time_can_be_ended_at_once(front: Front) -> None:
    streams = [front.text() for _ in range(CAPACITY + 2)] + [front.picture()]
    assert not front.engine.drain(0.05)
    front.engine.fail_all(Overloaded("The server is stopping."))
    for stream in streams:
        with pytest.raises(Overloaded, match="stopping"):
            stream.result(SOON_S)
    assert front.engine.drain(SOON_S)
    assert wait_until(lambda: front.engine.ask(GetStats).result(SOON_S).running == {})
    assert all(sum(isinstance(event, Final) for event in stream) == 1 for stream in streams)


def test_closing_aborts_what_runs_and_leaves_nothing() -> None:
    with opened() as front:
        streams = [front.text(), front.picture(), *(front.text() for _ in range(5))]
        next(iter(streams[1]))
        pid, folders = front.engine.pid, front.engine._folders.all
    for stream in streams:
        with pytest.raises(RequestAborted):
            stream.result(SOON_S)
    assert pid is not None and not is_alive(pid)
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(Overloaded):
        front.text()
    assert front.down == []


def test_an_engine_that_does_not_listen_any_more_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hemiola.api.remote._STOP_WAIT_S", 0.2)
    with opened() as front:
        stream, pid = front.text(), front.engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    assert not is_alive(pid)
    with pytest.raises(EngineDied):
        stream.result(SOON_S)


# Deaths


def test_a_killed_engine_fails_all_its_requests_at_once_and_comes_back(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    streams = [*(front.text() for _ in range(8)), front.picture()]
    next(iter(streams[0]))
    (front.engine._folders.all[0] / "1-0.frames").write_bytes(b"half a picture")
    questions = [front.engine.ask(Flush) for _ in range(2)]
    pid = front.kill()
    killed_s = time.monotonic()
    for stream in streams:
        with pytest.raises(EngineDied, match="died while it worked on this request"):
            stream.result(SOON_S)
        assert sum(isinstance(event, Final) for event in stream) == 1
    assert time.monotonic() - killed_s < 2.0
    assert all(question.done() or question.exception(SOON_S) for question in questions)
    assert wait_until(lambda: front.engine.num_restarts == 1 and front.engine.is_ready)
    assert front.engine.pid not in (None, pid) and not is_alive(pid)
    assert f"({pid}) was ended by SIGKILL while 9 requests were unfinished" in caplog.text
    assert front.left_frames() == []
    assert front.engine.num_queued == 0
    assert len(front.text(5).result(SOON_S)) == 6 and len(front.picture(2).result(SOON_S)) == 4


def test_while_it_is_started_again_it_is_starting() -> None:
    """Once, clients were told of an internal error meanwhile, and not to come again."""
    with opened(restarts=Restarts(max_deaths=3, pause_s=5.0)) as front:
        for _ in range(2):  # the second time there is a pause
            assert wait_until(lambda: front.engine.is_ready)
            front.kill()
        assert wait_until(lambda: front.engine.state == "restarting")
        assert not front.engine.is_ready
        with pytest.raises(Overloaded, match=r"^The engine is starting\.$"):
            front.text()
        with pytest.raises(Overloaded, match=r"^The engine is starting\.$"):
            front.engine.ask(Flush).result(SOON_S)


def test_an_engine_that_dies_again_and_again_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    with opened(restarts=Restarts(max_deaths=3, pause_s=0.0)) as front:
        for _ in range(3):
            assert wait_until(lambda: front.engine.is_ready)
            stream = front.text(model="quits")
            with pytest.raises(EngineDied):
                stream.result(SOON_S)
        assert wait_until(lambda: len(front.down) == 1)
        assert front.engine.state == "down" and front.engine.num_restarts == 2
        assert "exited with status 7" in caplog.text and "it is not started again" in caplog.text
        with pytest.raises(EngineDied, match="There is no engine"):
            front.text()


def test_deaths_long_ago_do_not_count() -> None:
    with opened(restarts=Restarts(max_deaths=2, window_s=0.3, pause_s=0.0)) as front:
        for count in (1, 2, 3):
            front.kill()
            assert wait_until(lambda count=count: front.engine.num_restarts == count and front.engine.is_ready)  # type: ignore[misc]
            time.sleep(0.3)
    assert front.down == []


def test_requests_that_meet_a_death_all_end() -> None:
    """Submitted from several threads while the engine is killed: each is refused, or ends with one final event."""
    with opened() as front:
        outcomes: list[object] = []

        def ask(name: str) -> None:
            for i in range(50):
                try:
                    request = TextRequest(id=f"{name}{i}", model="m", token_ids=(1,), sampling=Sampling(max_tokens=3))
                    outcomes.append(front.ask(request))
                except (EngineDied, Overloaded) as error:
                    outcomes.append(error)
                time.sleep(0.001)

        threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        front.kill()
        for thread in threads:
            thread.join()
        streams = [outcome for outcome in outcomes if isinstance(outcome, Stream)]
        assert wait_until(lambda: all(stream.is_done for stream in streams))
        assert all(sum(isinstance(event, Final) for event in stream) == 1 for stream in streams)
        assert len(outcomes) == 200 and front.engine.num_unfinished == 0


def test_a_front_that_is_killed_takes_its_engine_with_it_and_leaves_nothing() -> None:
    killed = subprocess.run([sys.executable, "-c", FRONT], capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pid, *folders = killed.stdout.split()
    assert wait_until(lambda: not is_alive(int(pid)))
    assert folders and not any(Path(folder).exists() for folder in folders)


def test_an_engine_leaves_signals_to_its_front() -> None:
    """Ctrl-C and a service manager's SIGTERM go to all processes of a group, and the front has requests to finish."""
    code = "from hemiola.api.front_link import leave_signals_to_the_front as leave; leave(); import os, signal; "
    code += "os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGTERM); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "alive"


# Starts that fail


def test_what_the_start_fails_of_is_raised_and_not_tried_again() -> None:
    front = Front("corrupt")
    front.engine.begin()
    with pytest.raises(CorruptWeights, match="truncated"):
        front.engine.wait_ready(SOON_S)
    assert front.lines == ["Pretending"] and front.engine.num_restarts == 0
    assert wait_until(lambda: len(front.down) == 1)
    front.engine.close()


def test_an_engine_that_is_killed_while_it_starts_is_not_started_again() -> None:
    front = Front("slow")
    front.engine.begin()
    with pytest.raises(Overloaded, match="starting"):
        front.text()
    assert wait_until(lambda: bool(front.lines))
    with pytest.raises(TimeoutError):
        front.engine.wait_ready(0.01)
    front.kill()
    with pytest.raises(EngineDied, match="SIGKILL before it was ready"):
        front.engine.wait_ready(SOON_S)
    assert front.engine.num_restarts == 0
    front.engine.close()


def test_closing_an_engine_that_is_just_starting_ends_it() -> None:
    front = Front("slow")
    front.engine.begin()
    assert wait_until(lambda: front.engine.pid is not None)
    pid = front.engine.pid
    front.engine.close()
    assert pid is not None and not is_alive(pid)
    with pytest.raises(EngineDied, match="closed before it was ready"):
        front.engine.wait_ready(SOON_S)


def test_one_that_was_never_started_can_be_closed() -> None:
    front = Front()
    with pytest.raises(Overloaded):
        front.text()
    front.engine.close()
    assert not any(folder.exists() for folder in front.engine._folders.all)


def test_the_same_test_helpers_see_processes() -> None:
    assert is_alive(os.getpid())
    ended = subprocess.Popen(["true"])
    assert wait_until(lambda: not is_alive(ended.pid))
    assert ended.wait() == 0
