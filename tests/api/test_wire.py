"""Messages between the front and the engine process, and the files in which frames travel."""

import fcntl
import pickle
from pathlib import Path

import msgspec
import pytest

from hemiola.api import frames, wire
from hemiola.api.frames import FrameWriter, PrivateFolders
from hemiola.api.stats import CacheStats, EngineStats, ErrorCounts, PhaseCount
from hemiola.core.config import EngineConfig
from hemiola.core.errors import HemiolaError
from hemiola.core.events import (
    Event,
    Failed,
    Finished,
    Image,
    Pixels,
    Preview,
    Progress,
    Token,
    TopLogprob,
    Usage,
    Video,
)
from hemiola.core.request import MediaRequest, ProgramShare, Sampling, TextRequest
from hemiola.core.step import Work
from hemiola.core.tracing import StepRecord
from hemiola.tests.source_tree import sources

TEXT = TextRequest(
    id="a-1",
    model="Qwen/Qwen3-8B",
    tenant="t",
    priority=-3,
    arrival_s=12.5,
    deadline_s=1.5,
    group="a",
    index=1,
    token_ids=(1, 2, 150_000),
    sampling=Sampling(temperature=0.7, seed=2**63 + 126, stop_token_ids=(7,), stop=("\n\n", "é"), logprobs=3),
    cache_salt="salt",
    program=ProgramShare(id="p", behind_s=2.5, keeps_prefix=True),
)
MEDIA = MediaRequest(
    id="b",
    model="wan",
    token_ids={"text_encoder": (1, 2)},
    negative_token_ids={"text_encoder": ()},
    width=832,
    height=480,
    num_frames=81,
    num_inference_steps=50,
    guidance_scale=5.0,
    seed=-(2**63),
    pixel_type="float32",
)
STATS = EngineStats(
    at_s=1.25,
    running={"chat": 3},
    num_queued=2,
    parks={"chat": 1},
    phases=(PhaseCount("chat", "decode", 10, 0.5),),
    errors={"chat": ErrorCounts((1, 0, 2), 0.7)},
    caches={"chat": CacheStats(100, 40, 60, 7, 70)},
    arena_bytes={"free": 2**40},
)
STEP = StepRecord("device", "chat", "decode", 2, 1.0, 1.5, 0.4, Work(rows=2, new_tokens=2), ("a", "b"), "tokens")
EVENTS: tuple[Event, ...] = (
    Token("a", 5, -0.25, (TopLogprob(5, -0.25), TopLogprob(9, -3.0)), "é"),
    Progress("b", "denoise", 3, 50),
    Finished("a", "stop", Usage(10, 4, 6, 7), "\n\n"),
    Failed("b", "step_failed", "no"),
)


@pytest.mark.parametrize(
    "command",
    [
        wire.Submit(TEXT),
        wire.Submit(MEDIA),
        wire.Abort("a"),
        wire.Finish("a"),
        wire.EndProgram("p"),
        wire.Flush(1),
        wire.GetStats(2),
        wire.GetSteps(3, 0.5),
        wire.Shutdown(),
    ],
)
def test_commands_come_out_as_they_went_in(command: wire.Command) -> None:
    assert wire.decode_command(wire.encode(command)) == command


@pytest.mark.parametrize(
    "report",
    [
        wire.Starting("Loading"),
        wire.Ready(
            wire.StartReport(
                memory=(wire.MemoryLine("arena", 5, "as asked"),),
                kernels={"rope": "torch"},
                settings=("a: b",),
                seconds=2.5,
            )
        ),
        wire.StartFailed("corrupt_weights", "truncated"),
        wire.EventBatch(EVENTS, 7, 1),
        wire.MediaBatch((Image("b", Pixels(b"", 1, 8, 8)), EVENTS[2]), {0: (1, "9-0.frames")}),
        wire.StatsReport(STATS, 4),
        wire.Steps(5, (STEP,)),
        wire.Flushed(6, 128),
        wire.Died("RuntimeError: no"),
    ],
)
def test_reports_come_out_as_they_went_in(report: wire.Report) -> None:
    assert wire.decode_report(wire.encode(report)) == report


def test_what_an_engine_is_to_run_fits_one_line() -> None:
    spec = wire.EngineSpec(
        models=("a=/models/a b",), config=EngineConfig(device="cpu", memory_bytes=2**40), frame_folders=("/dev/shm/x",)
    )
    line = wire.encode_spec(spec)
    assert line.count(b"\n") == 1 and wire.decode_spec(line) == spec


@pytest.mark.parametrize("data", [b"", b"junk", pickle.dumps("x"), wire.encode(wire.Died("report"))[:-1]])
def test_anything_else_is_refused(data: bytes) -> None:
    for decode in (wire.decode_command, wire.decode_report):
        with pytest.raises(msgspec.DecodeError):
            decode(data)


def test_a_command_with_a_field_of_another_type_is_refused() -> None:
    forged = msgspec.msgpack.encode({"type": "abort", "request_id": 5})
    with pytest.raises(msgspec.ValidationError):
        wire.decode_command(forged)


def test_the_server_never_pickles() -> None:
    unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing"}
    found = [
        f"{source.path}:{line} {name}"
        for source in sources()
        if source.folder == "api"
        for line, name in source.imports
        if name.split(".")[0] in unsafe
    ]
    assert found == []


@pytest.mark.parametrize(
    "event",
    [
        Image("a", Pixels(b"123456", 1, 1, 2)),
        Video("a", Pixels(b"123456", 2, 1, 1), 16),
        Preview("a", 3, Pixels(b"123456", 1, 1, 2)),
    ],
)
def test_frames_are_parted_from_their_event_and_put_back(event: Image | Video | Preview) -> None:
    data = wire.frames_of(event)
    assert data == b"123456"
    parted = wire.with_frames(event, b"")
    assert wire.frames_of(parted) == b"" and wire.with_frames(parted, data) == event
    assert wire.frames_of(EVENTS[0]) is None


# Frames in files


@pytest.fixture
def bases(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "memory", tmp_path / "disk"]
    for base in made:
        base.mkdir()
    return made


def test_frames_are_gone_once_they_were_read(bases: list[Path]) -> None:
    folders = PrivateFolders(bases)
    writer = FrameWriter(folders.all)
    places = [writer.put(bytes([i]) * 1000) for i in range(3)]
    assert [place[0] for place in places] == [0, 0, 0]
    assert [frames.take(folders.all, place) for place in places] == [bytes([i]) * 1000 for i in range(3)]
    assert folders.clear() == 0
    folders.close()
    assert [list(base.iterdir()) for base in bases] == [[], []]


def test_frames_go_to_the_disk_when_shared_memory_is_full(
    bases: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = PrivateFolders(bases)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.is_relative_to(bases[0]):
            write(path, data[:10])
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    place = FrameWriter(folders.all).put(b"x" * 100)
    assert place[0] == 1 and "No space left" in caplog.text
    assert frames.take(folders.all, place) == b"x" * 100
    assert folders.clear() == 0, "the half-written file was left"
    folders.close()


def test_no_room_anywhere_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(HemiolaError, match=r"no room for 0\.0 MiB of frames in .*nowhere"):
        FrameWriter([tmp_path / "nowhere"]).put(b"x")


def test_a_later_front_sweeps_what_a_killed_one_left_and_nothing_else(bases: list[Path]) -> None:
    alive = PrivateFolders(bases)
    dead = bases[0] / f"{frames.PREFIX}dead"
    dead.mkdir()
    (dead / "owner.lock").touch()
    (dead / "1-0.frames").write_bytes(b"x")
    being_made, others = bases[0] / f"{frames.PREFIX}new", bases[0] / "somebody-elses"
    being_made.mkdir()
    others.mkdir()
    PrivateFolders(bases).close()
    assert set(bases[0].iterdir()) == {alive.all[0], being_made, others}
    alive.close()


def test_folders_are_private_and_held(bases: list[Path]) -> None:
    folders = PrivateFolders(bases)
    for folder in folders.all:
        assert folder.stat().st_mode & 0o077 == 0
        with (folder / "owner.lock").open("rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folders.close()


def test_clearing_removes_what_an_engine_left(bases: list[Path]) -> None:
    folders = PrivateFolders(bases)
    writer = FrameWriter(folders.all)
    place = writer.put(b"x")
    writer.put(b"y")
    assert folders.clear() == 2
    with pytest.raises(OSError):
        frames.take(folders.all, place)
    folders.close()
