"""One engine process as the front sees it: started, spoken to, listened to until it is gone. Knows no requests.

Its death is noticed by a pipe of which the process alone holds the other end: the system closes it, whatever happened.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import zmq

from hemiola.core.config import wait_passively

from .frames import PrivateFolders
from .wire import Command, EngineSpec, Report, decode_report, encode, encode_spec

log = logging.getLogger(__name__)

ENGINE_MODULE = "hemiola.api.engine_process"
_POLL_MS = 1000
_LAST_WORDS_MS = 50
_EXIT_WAIT_S = 5.0


class EngineLink:
    """A running engine process. `send` on any thread that holds the owner's lock; the rest on one thread.

    Args:
        spec: what to run; addresses and folders are filled in here.
        folders: for its sockets and frames.
        number: tells the sockets of successive processes apart.
        module: what the process runs.
    """

    def __init__(self, spec: EngineSpec, folders: PrivateFolders, number: int, module: str = ENGINE_MODULE) -> None:
        self._context = zmq.Context()
        self._commands = self._bind(zmq.PUSH, commands := f"ipc://{folders.disk}/commands-{number}")
        self._reports = self._bind(zmq.PULL, reports := f"ipc://{folders.disk}/reports-{number}")
        self._alive, held_by_process = os.pipe()
        wait_passively()  # torch reads it when the process imports it
        self.process = subprocess.Popen(
            # -P: what lies in the working folder is not to be found under the names of packages
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=2,  # what libraries print is for the log
            pass_fds=(held_by_process,),
            start_new_session=True,  # a terminal's Ctrl-C is the front's, even before the process can ignore it
        )
        os.close(held_by_process)
        self._introduce(
            msgspec.structs.replace(
                spec, commands=commands, reports=reports, frame_folders=tuple(str(folder) for folder in folders.all)
            )
        )

    def _bind(self, kind: int, address: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(address)
        return socket

    def _introduce(self, spec: EngineSpec) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(encode_spec(spec))
            self.process.stdin.flush()
        except BrokenPipeError:
            log.error("The engine process ended before it was told what to run.")  # `reports` will say so, too

    def send(self, command: Command) -> bool:
        """Whether it could be handed over; False when nobody is there (any more)."""
        try:
            self._commands.send(encode(command), zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def reports(self) -> Iterator[Report]:
        """All that the process says, until it is gone."""
        poller = zmq.Poller()
        poller.register(self._reports, zmq.POLLIN)
        poller.register(self._alive, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(_POLL_MS))
            yield from self._arrived()
            if self._alive in ready or self.process.poll() is not None:
                break
        while self._reports.poll(_LAST_WORDS_MS):
            yield from self._arrived()

    def _arrived(self) -> Iterator[Report]:
        while True:
            try:
                data = self._reports.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield decode_report(data)

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()

    def close(self) -> str:
        """Waits for the end of the process, ends it if need be, and closes the sockets; how it ended, for people."""
        try:
            self.process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        status = self.process.wait()
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            log.debug("The engine process never read what it was told.")
        os.close(self._alive)
        self._context.destroy(linger=0)
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
