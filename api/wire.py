"""What the front and the engine process say to each other: typed messages in msgpack over ZeroMQ, never pickle.

Commands go to the engine, reports come back. Frames do not travel in messages: those that carry events with frames name
the files in which they lie (`frames.py`). Knows neither sockets nor processes.
"""

from typing import Any

import msgspec

from hemiola.core.config import EngineConfig
from hemiola.core.events import Event, Image, Preview, Video
from hemiola.core.request import Request
from hemiola.core.tracing import StepRecord

from .stats import EngineStats


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a new engine process has to know; the first line of its standard input.

    Fields:
        models: specs as `core.hub` reads them.
        memory_fraction: of the device's memory (a CPU's: of the machine's) for the arena, instead of config's bytes.
        commands, reports: addresses of the front's sockets.
        frame_folders: where frames may be left, best first.
        log_level: a name as `logging` has them.
    """

    models: tuple[str, ...]
    config: EngineConfig
    memory_fraction: float | None = None
    commands: str = ""
    reports: str = ""
    frame_folders: tuple[str, ...] = ()
    log_level: str = "WARNING"


# Commands: front to engine. `query` is repeated in the answer.


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    request: Request


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    request_id: str


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    request_id: str


class EndProgram(msgspec.Struct, frozen=True, tag="end_program"):
    """Of it nothing is left and nothing will come."""

    program: str


class Flush(msgspec.Struct, frozen=True, tag="flush"):
    """Forget all prefixes that nobody uses."""

    query: int


class GetStats(msgspec.Struct, frozen=True, tag="get_stats"):
    query: int


class GetSteps(msgspec.Struct, frozen=True, tag="get_steps"):
    """Steps that ended after `since_s` on the engine's clock."""

    query: int
    since_s: float


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Abort what runs, say so, and exit."""


Command = Submit | Abort | Finish | EndProgram | Flush | GetStats | GetSteps | Shutdown


# Reports: engine to front.


class Starting(msgspec.Struct, frozen=True, tag="starting"):
    """How far the start has come, for people."""

    line: str


class MemoryLine(msgspec.Struct, frozen=True):
    """`nbytes` of the device's memory (or the host's) for `what`, and why as many."""

    what: str
    nbytes: int
    why: str

    @property
    def mib(self) -> str:
        """The bytes for people."""
        mib = self.nbytes / 2**20
        return f"{mib:,.0f} MiB" if mib >= 10 else f"{mib:.1f} MiB"


class StartReport(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, for the start-up table.

    Fields:
        memory: what it is laid out for.
        kernels: per operation the backend that was chosen.
        settings: lines of `ResolvedConfig`.
        seconds: how long the start took.
    """

    memory: tuple[MemoryLine, ...]
    kernels: dict[str, str]
    settings: tuple[str, ...]
    seconds: float


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    report: StartReport


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """It will never run as it was asked to. `code` is that of a HemiolaError."""

    code: str
    message: str


class EventBatch(msgspec.Struct, frozen=True, tag="events"):
    """All that an iteration of the loop had to say of text, and how long the queue then was.

    Fields:
        num_taken: Submits that had been read by then, since the start.
        num_queued: of those, how many wait to be admitted.
    """

    events: tuple[Event, ...]
    num_taken: int
    num_queued: int


class MediaBatch(msgspec.Struct, frozen=True, tag="media"):
    """Events of pictures and clips. `files` has, for each event with frames, the place of it and where they lie."""

    events: tuple[Event, ...]
    files: dict[int, tuple[int, str]] = {}


class StatsReport(msgspec.Struct, frozen=True, tag="stats"):
    """Sent a few times a second while something happens, or as the answer to `query`."""

    stats: EngineStats
    query: int | None = None


class Steps(msgspec.Struct, frozen=True, tag="steps"):
    query: int
    records: tuple[StepRecord, ...]


class Flushed(msgspec.Struct, frozen=True, tag="flushed"):
    """How many tokens were forgotten."""

    query: int
    num_tokens: int


class Died(msgspec.Struct, frozen=True, tag="died"):
    """The loop is gone, and why; the process ends now."""

    message: str


Report = Starting | Ready | StartFailed | EventBatch | MediaBatch | StatsReport | Steps | Flushed | Died


_encoder = msgspec.msgpack.Encoder()
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def encode(message: Command | Report) -> bytes:
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """
    Raises:
        msgspec.DecodeError: no such message, or not as its type says.
    """
    command: Command = _command_decoder.decode(data)
    return command


def decode_report(data: bytes) -> Report:
    """
    Raises:
        msgspec.DecodeError: no such message, or not as its type says.
    """
    report: Report = _report_decoder.decode(data)
    return report


def encode_spec(spec: EngineSpec) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(spec) + b"\n"


def decode_spec(line: bytes) -> EngineSpec:
    return msgspec.json.decode(line, type=EngineSpec)


def frames_of(event: Event) -> bytes | None:
    """The raw frames that an event carries; None if it is of a kind without."""
    return event.pixels.data if isinstance(event, Image | Video | Preview) else None


def with_frames(event: Any, data: bytes) -> Event:
    """The same event with these frames."""
    replaced: Event = msgspec.structs.replace(event, pixels=msgspec.structs.replace(event.pixels, data=data))
    return replaced
