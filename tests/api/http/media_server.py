"""A server on a real port over pretended pictures and clips, for real clients."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from hemiola.api.http.app import create_app
from hemiola.api.http.settings import Settings
from hemiola.api.jobs import JobLimits
from hemiola.tests.api.http.media_rig import Painter, open_calls
from hemiola.tests.api.listening import listening


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
    app = create_app(calls, Settings(data_dir=folder / "data", jobs=jobs or JobLimits(), **settings))
    with (
        listening(app) as url,
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
