"""What the engine process has to say, gathered and sent: a message per iteration of the loop, frames on another thread.

Text goes out on the loop's own thread: nothing is faster. Whatever belongs to a request for pictures or clips goes by
a second thread with a socket of its own, since leaving the frames of a long clip takes longer than a step may.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Failed, Final
from hemiola.core.request import MediaRequest, Request

from .frames import FrameWriter
from .front_link import FrontLink
from .stats import EngineStats
from .wire import EventBatch, MediaBatch, StatsReport, encode, frames_of, with_frames

log = logging.getLogger(__name__)

STATS_PERIOD_S = 0.25


class MediaSender:
    """Sends events of pictures and clips, in order, on a thread of its own.

    Args:
        socket: used by that thread alone.
        folders: where frames are left.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", folders: Sequence[Path]) -> None:
        self._socket = socket
        self._writer = FrameWriter(folders)
        self._events: queue.SimpleQueue[tuple[Event, ...] | None] = queue.SimpleQueue()
        self._lost: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="hemiola-frames", daemon=True)
        self._thread.start()

    def put(self, events: tuple[Event, ...]) -> None:
        self._events.put(events)

    def close(self) -> None:
        """Returns when all is sent."""
        self._events.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (events := self._events.get()) is not None:
            self._send(events)

    def _send(self, events: Sequence[Event]) -> None:
        sent: list[Event] = []
        files: dict[int, tuple[int, str]] = {}
        for event in events:
            if event.request_id in self._lost:
                if isinstance(event, Final):
                    self._lost.discard(event.request_id)
                continue
            frames = frames_of(event)
            if frames is not None:
                try:
                    files[len(sent)] = self._writer.put(frames)
                    event = with_frames(event, b"")
                except HemiolaError as error:  # the request fails alone, and the rest of it is not told
                    log.error("%s", error.message)
                    files.pop(len(sent), None)
                    self._lost.add(event.request_id)
                    event = Failed(event.request_id, error.code, error.message)
            sent.append(event)
        if sent:
            self._socket.send(encode(MediaBatch(tuple(sent), files)))


class Outbox:
    """The loop's side: `deliver` each event, `flush` after each iteration. On the loop's thread, apart from `taking`.

    Args:
        clock: seconds.
    """

    def __init__(self, link: FrontLink, clock: Callable[[], float]) -> None:
        self._link = link
        self._media = MediaSender(link.open_media(), link.frame_folders)
        self._clock = clock
        self._media_ids: set[str] = set()
        self._texts: list[Event] = []
        self._pictures: list[Event] = []
        self._num_taken = 0
        self._told = (0, 0)
        self._stats_due_s = 0.0

    def taking(self, request: Request) -> None:
        """A request is about to be queued. On any thread."""
        if isinstance(request, MediaRequest):
            self._media_ids.add(request.id)

    def taken(self) -> None:
        """A request was queued."""
        self._num_taken += 1

    def deliver(self, event: Event) -> None:
        if event.request_id not in self._media_ids:
            self._texts.append(event)
            return
        self._pictures.append(event)
        if isinstance(event, Final):
            self._media_ids.discard(event.request_id)

    def flush(self, num_queued: int, read_stats: Callable[[], EngineStats]) -> None:
        """Sends what was delivered, if anything was or the queue changed; figures now and then."""
        if self._pictures:
            self._media.put(tuple(self._pictures))
            self._pictures.clear()
        told = (self._num_taken, num_queued)
        if self._texts or told != self._told:
            self._link.tell(EventBatch(tuple(self._texts), *told))
            self._told = told
            self._texts.clear()
        if self._clock() >= self._stats_due_s:
            self.send_stats(read_stats())

    def close(self) -> None:
        """Returns when all that was flushed is sent."""
        self._media.close()

    def send_stats(self, stats: EngineStats) -> None:
        self._link.tell(StatsReport(stats))
        self._stats_due_s = self._clock() + STATS_PERIOD_S
