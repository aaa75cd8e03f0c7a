"""The front as the engine's process sees it: told what to run, listened to, spoken to, and died with.

Standard input is one line, the EngineSpec, and then stays open for as long as the front lives. Knows no engine.
"""

import logging
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import zmq

from .wire import Command, EngineSpec, Report, decode_command, decode_spec, encode

log = logging.getLogger(__name__)

_LINGER_MS = 2000  # for the last words before an exit


class FrontLink:
    """The engine's ends of the connection.

    Args:
        spec: where the front listens, and where frames are left.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.frame_folders = tuple(Path(folder) for folder in spec.frame_folders)
        self._reports_address = spec.reports
        self._context = zmq.Context()
        self._commands = self._context.socket(zmq.PULL)
        self._commands.setsockopt(zmq.RCVHWM, 0)
        self._commands.connect(spec.commands)
        self._reports = self._open()

    def _open(self) -> "zmq.Socket[bytes]":
        """One that never blocks and never drops: what cannot be sent yet waits in memory."""
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.connect(self._reports_address)
        return socket

    def open_media(self) -> "zmq.Socket[bytes]":
        """A second way for reports, for another thread; what goes by it keeps its own order only."""
        return self._open()

    def tell(self, report: Report) -> None:
        """On one thread at a time: the loop's while it runs, else the main one."""
        self._reports.send(encode(report))

    def next_command(self, timeout_ms: int) -> Command | None:
        """On the main thread; None if none came in time."""
        return decode_command(self._commands.recv()) if self._commands.poll(timeout_ms) else None

    def close(self) -> None:
        """Returns when all that was told is handed over, or nobody takes it."""
        self._context.destroy(linger=_LINGER_MS)


def read_spec(fd: int) -> EngineSpec:
    """The line that the front wrote first."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(fd, 65536)
        if not piece:
            raise SystemExit("This is started by a front, which says on standard input what to run.")
        line += piece
    return decode_spec(bytes(line))


def leave_signals_to_the_front() -> None:
    """Ignores those that a terminal or a service manager sends to a whole group: the front may be draining."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def die_with_the_front(fd: int, folders: Sequence[str]) -> None:
    """Waits for the end of standard input on a thread, then ends the process at once: nobody is left to be told."""

    def wait() -> None:
        while os.read(fd, 4096):
            pass
        log.critical("The front is gone. Exiting.")
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, name="hemiola-front-watch", daemon=True).start()
