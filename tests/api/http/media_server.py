"""A server on a real port over pretended pictures and clips, for real clients."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import uvicorn

from hemiola.api.calls import Calls
from hemiola.api.http.app import create_app
from hemiola.api.http.settings import Settings
from hemiola.api.jobs import JobLimits
from hemiola.tests.api.http.media_rig import Painter, open_calls


@contextlib.contextmanager
def listening(calls: Calls, settings: Settings) -> Iterator[str]:
    """The URL of a server that answers until the end of the block."""
    config = uvicorn.Config(create_app(calls, settings), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive(), "the server did not stop"


@dataclass
class MediaServer:
    """One server, its backend, and clients of it. `url` ends without a slash."""

    painter: Painter
    url: str
    http: httpx.Client

    def sdk(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def error(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Status and error of a request that is refused."""
        response = self.post(path, **body)
        error: dict[str, Any] = response.json()["error"]
        return response.status_code, error


@contextlib.contextmanager
def serving(folder: Path, *, jobs: JobLimits | None = None, **settings: Any) -> Iterator[MediaServer]:
    """A server whose results are in `folder`, where another one may go on later."""
    painter = Painter()
    calls = open_calls(folder / "models", painter)
    limits = jobs or JobLimits()
    with (
        listening(calls, Settings(data_dir=folder / "data", jobs=limits, **settings)) as url,
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        yield MediaServer(painter, url, http)
    painter.let_go()
    calls.close()


def soon(check: Any, timeout_s: float = 10.0) -> Any:
    """What `check` gives, as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := check()):
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.01)
    return value
