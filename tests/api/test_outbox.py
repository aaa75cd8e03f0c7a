"""What the engine's process sends, and in how many messages."""

from pathlib import Path
from typing import Any

from hemiola.api.frames import take
from hemiola.api.outbox import MediaSender, Outbox
from hemiola.api.stats import EngineStats
from hemiola.api.wire import EventBatch, MediaBatch, Report, StatsReport, decode_report
from hemiola.core.events import Event, Failed, Finished, Image, Pixels, Progress, Token
from hemiola.core.request import MediaRequest, TextRequest

STATS = EngineStats(
    at_s=0.0, running={}, num_queued=0, parks={}, phases=(), errors={}, caches={}, arena_bytes={"free": 1}
)
TEXT = TextRequest(id="t", model="m", token_ids=(1,))
PICTURE = MediaRequest(id="p", model="m", token_ids={}, width=8, height=8, num_inference_steps=2, guidance_scale=1.0)
IMAGE = Image("p", Pixels(b"rgb" * 64, 1, 8, 8))


class Socket:
    """Keeps what is sent; also a link to a front, as far as an Outbox needs one."""

    def __init__(self, *folders: Path) -> None:
        self.frame_folders = folders
        self.sent: list[Report] = []

    def send(self, data: bytes) -> None:
        self.sent.append(decode_report(data))

    def tell(self, report: Report) -> None:
        self.sent.append(report)

    def open_media(self) -> "Socket":
        return self

    @property
    def events(self) -> list[Event]:
        return [event for report in self.sent if isinstance(report, MediaBatch | EventBatch) for event in report.events]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def outbox(socket: Any, clock: Clock) -> Outbox:
    """One that has just told its figures."""
    made = Outbox(socket, clock)
    made.send_stats(STATS)
    socket.sent.clear()
    return made


def test_all_text_of_a_step_is_one_message(tmp_path: Path) -> None:
    socket = Socket(tmp_path)
    box = outbox(socket, Clock())
    box.taking(TEXT)
    box.taken()
    tokens = tuple(Token("t", i) for i in range(16))
    for token in tokens:
        box.deliver(token)
    box.flush(3, lambda: STATS)
    assert socket.sent == [EventBatch(tokens, 1, 3)]
    box.flush(3, lambda: STATS)
    assert len(socket.sent) == 1, "nothing new was told"
    box.flush(2, lambda: STATS)
    assert socket.sent[1:] == [EventBatch((), 1, 2)]
    box.close()


def test_figures_are_told_now_and_then(tmp_path: Path) -> None:
    socket, clock = Socket(tmp_path), Clock()
    box = outbox(socket, clock)
    for now_s in (0.1, 0.2, 0.3, 0.4, 0.6):
        clock.now_s = now_s
        box.flush(0, lambda: STATS)
    assert socket.sent == [StatsReport(STATS)] * 2
    box.close()


def test_all_events_of_a_picture_go_one_way_in_order_and_frames_by_file(tmp_path: Path) -> None:
    socket = Socket(tmp_path)
    box = outbox(socket, Clock())
    for request in (TEXT, PICTURE):
        box.taking(request)
        box.taken()
    events = (Progress("p", "denoise", 1, 2), IMAGE, Finished("p", "done"))
    for event in (events[0], Token("t", 1), *events[1:]):
        box.deliver(event)
    box.flush(0, lambda: STATS)
    box.close()
    (texts,) = [report for report in socket.sent if isinstance(report, EventBatch)]
    (media,) = [report for report in socket.sent if isinstance(report, MediaBatch)]
    assert texts.events == (Token("t", 1),)
    assert (media.events[0], media.events[2]) == (events[0], events[2])
    assert isinstance(media.events[1], Image) and media.events[1].pixels.data == b""
    assert take((tmp_path,), media.files[1]) == IMAGE.pixels.data and list(media.files) == [1]


def test_a_picture_that_there_is_no_room_for_fails_and_ends_there(tmp_path: Path) -> None:
    socket: Any = Socket()
    sender = MediaSender(socket, [tmp_path / "nowhere"])
    other = Progress("q", "denoise", 1, 2)
    sender.put((Progress("p", "denoise", 2, 2), IMAGE, other))
    sender.put((Finished("p", "done"),))
    sender.put((Progress("p", "denoise", 1, 2),))  # another request of the same id, later
    sender.close()
    progress, failed, same, later = socket.events
    assert progress == Progress("p", "denoise", 2, 2) and same == other and later == Progress("p", "denoise", 1, 2)
    assert isinstance(failed, Failed) and "no room" in failed.message
