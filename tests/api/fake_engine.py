"""A process that speaks as an engine does and computes nothing: starts in a blink, for tests of the front's side.

Run as a module by `RemoteEngine(..., module=MODULE)`. `CAPACITY` requests run at once, a token or a denoise step each
per millisecond; the others are queued. Models' names say what is special: `calm` takes 30 ms, others misbehave.
"""

import os
import sys
import time
from collections import Counter

from hemiola.api.front_link import FrontLink, die_with_the_front, read_spec
from hemiola.api.outbox import Outbox
from hemiola.api.stats import EngineStats
from hemiola.api.wire import (
    Abort,
    Command,
    EngineSpec,
    Finish,
    Flush,
    Flushed,
    GetStats,
    GetSteps,
    Ready,
    Shutdown,
    StartFailed,
    Starting,
    StartReport,
    StatsReport,
    Steps,
    Submit,
)
from hemiola.core.errors import CorruptWeights
from hemiola.core.events import Failed, Finished, Image, Pixels, Progress, Token, Usage
from hemiola.core.request import MediaRequest, Request
from hemiola.core.step import Work
from hemiola.core.tracing import StepRecord

MODULE = "hemiola.tests.api.fake_engine"
CAPACITY = 4
NUM_TOKEN_IDS = 256
SIDE = 64
"""Of all pictures."""
FRAMES = bytes(range(256)) * (SIDE * SIDE * 3 // 256)


class FakeEngine:
    """Requests in the order they came, and how far each has come."""

    def __init__(self, link: FrontLink, step_ms: int) -> None:
        self._link = link
        self._step_ms = step_ms
        self._outbox = Outbox(link, time.monotonic)
        self._requests: dict[str, Request] = {}
        self._done: Counter[str] = Counter()
        self._num_steps = 0

    def serve(self) -> int:
        """Until a Shutdown; the exit status."""
        while not isinstance(command := self._link.next_command(self._step_ms), Shutdown):
            if command is not None:
                self._do(command)
            self._step()
            self._outbox.flush(max(0, len(self._requests) - CAPACITY), self._stats)
        for request_id in tuple(self._requests):
            self._end(Failed(request_id, "request_aborted", "The request was aborted."))
        self._outbox.flush(0, self._stats)
        self._outbox.close()
        return 0

    def _do(self, command: Command) -> None:
        match command:
            case Submit(request):
                if request.model == "quits":
                    os._exit(7)
                self._outbox.taking(request)
                self._outbox.taken()
                self._requests[request.id] = request
            case Abort(request_id) if request_id in self._requests:
                self._end(Failed(request_id, "request_aborted", "The request was aborted."))
            case Finish(request_id) if request_id in self._requests:
                self._end(Finished(request_id, "stop"))
            case Flush(query):
                self._link.tell(Flushed(query, 5))
            case GetStats(query):
                self._link.tell(StatsReport(self._stats(), query))
            case GetSteps(query, since_s):
                self._link.tell(Steps(query, (self._record(since_s),)))

    def _step(self) -> None:
        for request in tuple(self._requests.values())[:CAPACITY]:
            self._done[request.id] += 1
            self._num_steps += 1
            if isinstance(request, MediaRequest):
                self._denoise(request, self._done[request.id])
            else:
                self._outbox.deliver(Token(request.id, self._done[request.id] % NUM_TOKEN_IDS))
                if self._done[request.id] == request.sampling.max_tokens:
                    self._end(Finished(request.id, "length", Usage(len(request.token_ids), 0, self._done[request.id])))

    def _denoise(self, request: MediaRequest, done: int) -> None:
        self._outbox.deliver(Progress(request.id, "denoise", done, request.num_inference_steps))
        if done == request.num_inference_steps:
            self._outbox.deliver(Image(request.id, Pixels(FRAMES, 1, SIDE, SIDE)))
            self._end(Finished(request.id, "done"))

    def _end(self, event: Finished | Failed) -> None:
        del self._requests[event.request_id]
        self._outbox.deliver(event)

    def _record(self, since_s: float) -> StepRecord:
        return StepRecord("fake", "m", "decode", 1, since_s, since_s + 1, 1.0, Work(rows=1), ("a",), "tokens")

    def _stats(self) -> EngineStats:
        return EngineStats(
            at_s=time.monotonic(),
            running=dict(Counter(request.model for request in tuple(self._requests.values())[:CAPACITY])),
            num_queued=max(0, len(self._requests) - CAPACITY),
            parks={"m": self._num_steps // 10},
            phases=(),
            errors={},
            caches={},
            arena_bytes={"free": 100},
        )


def start(spec: EngineSpec, link: FrontLink) -> int:
    """As the first model's name says; the exit status."""
    link.tell(Starting("Pretending"))
    kind = spec.models[0].partition("=")[0]
    if kind == "corrupt":
        link.tell(StartFailed(CorruptWeights.code, "model.safetensors is truncated"))
        return 2
    if kind == "slow":
        time.sleep(60)
    link.tell(Ready(StartReport(memory=(), kernels={}, settings=(), seconds=0.0)))
    return FakeEngine(link, step_ms=30 if kind == "calm" else 1).serve()


if __name__ == "__main__":
    asked = read_spec(sys.stdin.fileno())
    die_with_the_front(sys.stdin.fileno(), asked.frame_folders)
    front = FrontLink(asked)
    status = start(asked, front)
    front.close()
    sys.exit(status)
