"""The front's thread for pictures and clips: puts frames back into their events. Text need not wait for their bytes."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event, Failed

from .frames import take
from .wire import MediaBatch, with_frames

log = logging.getLogger(__name__)


class FrameReader:
    """Takes frames out of shared memory, in order, on a thread of its own.

    Args:
        folders: where they lie.
        deliver: told every event, on that thread.
    """

    def __init__(self, folders: Sequence[Path], deliver: Callable[[Event], None]) -> None:
        self._folders = tuple(folders)
        self._deliver = deliver
        self._batches: queue.Queue[MediaBatch | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="hemiola-frames", daemon=True)
        self._thread.start()

    def put(self, batch: MediaBatch) -> None:
        self._batches.put(batch)

    def settle(self) -> None:
        """Returns when all that was put is delivered."""
        self._batches.join()

    def close(self) -> None:
        self._batches.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._pass_on(batch)
            except Exception:  # a fault of ours with one event must not leave all later requests without an end
                log.exception("Events of pictures or clips were lost.")
            self._batches.task_done()
        self._batches.task_done()

    def _pass_on(self, batch: MediaBatch) -> None:
        for index, event in enumerate(batch.events):
            place = batch.files.get(index)
            self._deliver(event if place is None else self._complete(event, place))

    def _complete(self, event: Event, place: tuple[int, str]) -> Event:
        """With its frames; the request's failure if they are not there."""
        try:
            return with_frames(event, take(self._folders, place))
        except OSError as error:
            log.error("The frames of request %s are lost: %s", event.request_id, error)
            return Failed(event.request_id, HemiolaError.code, "Frames were lost on their way from the engine.")
