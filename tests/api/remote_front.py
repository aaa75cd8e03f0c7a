"""A front without models: a remote engine over `fake_engine.py`, with the streams of its requests."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hemiola.api.remote import RemoteEngine
from hemiola.api.restarts import Restarts
from hemiola.api.stream import Stream
from hemiola.api.wire import EngineSpec
from hemiola.core.config import EngineConfig
from hemiola.core.errors import HemiolaError
from hemiola.core.events import Event
from hemiola.core.request import MediaRequest, Request, Sampling, TextRequest
from hemiola.tests.api.fake_engine import MODULE

SOON_S = 10.0
ENDLESS = 10**9


class Front:
    """A remote engine with the streams of its requests."""

    def __init__(self, model: str = "m", **options: Any) -> None:
        self.streams: dict[str, Stream[list[Event]]] = {}
        self.down: list[HemiolaError] = []
        self.lines: list[str] = []
        self.engine = RemoteEngine(
            EngineSpec(models=(model,), config=EngineConfig()),
            self._deliver,
            restarts=options.pop("restarts", Restarts(max_deaths=3, pause_s=0.0)),
            on_line=self.lines.append,
            module=MODULE,
            **options,
        )
        self.engine.on_down = self.down.append

    def _deliver(self, event: Event) -> None:
        self.streams[event.request_id].push(event)

    def ask(self, request: Request) -> Stream[list[Event]]:
        stream: Stream[list[Event]] = Stream([request.id], list, self.engine.abort)
        self.streams[request.id] = stream
        self.engine.submit(request)
        return stream

    def text(self, num_tokens: int = ENDLESS, model: str = "m") -> Stream[list[Event]]:
        sampling = Sampling(max_tokens=num_tokens)
        return self.ask(TextRequest(id=f"t{len(self.streams)}", model=model, token_ids=(1, 2), sampling=sampling))

    def picture(self, num_steps: int = ENDLESS) -> Stream[list[Event]]:
        shape: dict[str, Any] = {"token_ids": {"e": (1,)}, "width": 64, "height": 64, "guidance_scale": 1.0}
        return self.ask(MediaRequest(id=f"p{len(self.streams)}", model="m", num_inference_steps=num_steps, **shape))

    def kill(self) -> int:
        pid = self.engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid

    def left_frames(self) -> list[Path]:
        return [path for folder in self.engine._folders.all for path in folder.glob("*.frames")]


@contextmanager
def opened(**options: Any) -> Iterator[Front]:
    front = Front(**options)
    front.engine.begin()
    front.engine.wait_ready(SOON_S)
    yield front
    front.engine.close()
