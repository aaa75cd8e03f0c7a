"""A server from its start to its end: HTTP over a ServedEngine, signals, and what people are told meanwhile.

HTTP is there at once and says 503 until the engine is ready. The first signal lets run what runs and takes no more, the
second one ends it. Knows uvicorn, and of the application only that it is one.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from hemiola.core.errors import EngineDied, HemiolaError, InvalidRequest, Overloaded

from .served import ServedEngine
from .wire import StartReport

log = logging.getLogger(__name__)

DRAIN_S = 30.0
_CLOSE_CONNECTIONS_S = 5


class _Uvicorn(uvicorn.Server):
    """Signals are not its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """One server. `run` it once.

    Args:
        engine: not started yet; closed at the end.
        app: an ASGI application.
        listener: a bound socket; closed at the end.
        on_ready: told what runs.
        say: told what else people should know, in sentences.
        drain_s: how long running requests may go on after the first signal.
    """

    def __init__(
        self,
        engine: ServedEngine,
        app: Any,
        listener: socket.socket,
        *,
        on_ready: Callable[[StartReport], None],
        say: Callable[[str], None],
        drain_s: float = DRAIN_S,
        has_access_log: bool = False,
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._on_ready = on_ready
        self._say = say
        self._drain_s = drain_s
        self._error: HemiolaError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._config = uvicorn.Config(
            app,
            log_config=None,
            access_log=has_access_log,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_CLOSE_CONNECTIONS_S,
        )
        self._server = _Uvicorn(self._config)

    def run(self) -> None:
        """Serves until a signal.

        Raises:
            HemiolaError: the engine could not be started, or died too often; or the application could not be started.
        """
        try:
            with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
                runner.run(self._serve())
        except SystemExit as exit_:  # uvicorn's way to say that the application's start failed; it has logged why
            raise HemiolaError("The HTTP server could not be started; the log says why.") from exit_
        finally:
            self._engine.close()
            self._listener.close()
        if self._error is not None:
            raise self._error

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        self._engine.remote.on_down = self._lost
        self._engine.begin()
        waiting = asyncio.create_task(self._wait_ready())
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            if not waiting.done():  # its thread ends when the engine is closed
                await asyncio.to_thread(self._engine.remote.close)
            await waiting

    async def _wait_ready(self) -> None:
        try:
            self._on_ready(await asyncio.to_thread(self._engine.remote.wait_ready))
        except EngineDied as error:
            if self._stopping is None:
                self._give_up(error)
        except HemiolaError as error:
            self._give_up(error)

    def _lost(self, error: HemiolaError) -> None:
        """On the engine's thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._give_up, error)

    def _give_up(self, error: HemiolaError) -> None:
        self._error = self._error or error
        self._server.should_exit = True

    def _signalled(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        else:
            self._say("Stopping at once.")
            self._end_requests()

    async def _stop(self) -> None:
        """Lets requests end for a while; then whoever still runs is told that the server is stopping."""
        remote = self._engine.remote
        if remote.num_unfinished:
            self._say(
                f"Stopping: {remote.num_unfinished} requests may go on for {self._drain_s:.0f} s. "
                "Another signal ends them at once."
            )
        if remote.state == "ready" and not await asyncio.to_thread(remote.drain, self._drain_s):
            log.warning("%d requests did not end in time.", remote.num_unfinished)
            self._end_requests()
        self._server.should_exit = True

    def _end_requests(self) -> None:
        self._engine.remote.fail_all(Overloaded("The server is stopping."))


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any that is free.

    Raises:
        InvalidRequest: the address cannot be had.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRequest("port", f"Nothing can listen on {host}:{port}: {reason}.") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where people reach it: by name on this machine, if it listens on every address."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
