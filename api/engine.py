"""The engine in this process: `Engine("demo")`, then `.chat`, `.complete`, `.image`, `.video`, and their streams.

Every call becomes requests at the edge (api/front), runs in the loop's thread (api/loop), and comes back as a Stream.
`x(...)` waits, `await ax(...)` waits in a coroutine, `stream_x(...)` returns at once.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hemiola.core.config import EngineConfig
from hemiola.core.errors import InvalidRequest, ModelNotFound
from hemiola.core.events import Event, Failed, Finished, Image, Video
from hemiola.core.request import Request, TextRequest
from hemiola.core.tracing import StepTrace
from hemiola.scheduler.scheduler import Scheduler

from . import compose
from .front.media import MediaFront
from .front.terms import CallTerms
from .front.text import TextFront, assemble_answers
from .loop import EngineLoop
from .results import Completion, ImageResult, Picture, VideoResult
from .stream import Stream
from .text_worker import TextWorker

T = TypeVar("T")
Messages = str | Sequence[dict[str, Any]]


class Engine:
    """Serves one or several models of any kind from one scheduler and one memory budget.

    Args:
        models: `"demo"`, Hugging Face ids, local folders, `name=path`; language and diffusion, told from their files.
        config: everything else; `options` are its fields by name.

    Raises:
        HemiolaError: a model is not found, not supported, corrupt, or does not fit.

    Use it as a context manager, or `close()` it.
    """

    def __init__(self, *models: str | Path, config: EngineConfig | None = None, **options: Any) -> None:
        self.loads = compose.plan(models or ("demo",), replace(config or EngineConfig(), **options))
        self.trace = StepTrace()
        self.fronts = {source.name: self._front(source) for source in self.loads.served}
        self._composition: compose.Composition | None = None
        self._streams: dict[str, Stream[Any]] = {}
        self._lock = threading.Lock()
        self._loop = EngineLoop(self._build, self._deliver, on_idle=self._check, num_threads=self.loads.config.threads)
        self._texts = TextWorker(self._push, self._loop.finish)
        self._loop.start()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Aborts what runs and stops the threads. The engine takes no more calls."""
        self._loop.stop()
        self._texts.stop()

    # Text

    def stream_chat(
        self, messages: Messages, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]:
        """Answers a conversation (a string is one user message). Options: see `TextFront.chat_requests`."""
        front = self._text_front(model)
        requests = front.chat_requests(messages, terms or CallTerms(), **options)
        return self._start_text(front, requests, has_tools=bool(options.get("tools")))

    def stream_complete(
        self,
        prompt: str | Sequence[int],
        *,
        model: str | None = None,
        terms: CallTerms | None = None,
        **options: Any,
    ) -> Stream[Completion]:
        """Continues a text or token ids. Options: see `TextFront.completion_requests`."""
        front = self._text_front(model)
        return self._start_text(front, front.completion_requests(prompt, terms or CallTerms(), **options))

    def chat(self, messages: Messages, **options: Any) -> Completion:
        return self.stream_chat(messages, **options).result()

    async def achat(self, messages: Messages, **options: Any) -> Completion:
        return await self.stream_chat(messages, **options).aresult()

    def complete(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        return self.stream_complete(prompt, **options).result()

    async def acomplete(self, prompt: str | Sequence[int], **options: Any) -> Completion:
        return await self.stream_complete(prompt, **options).aresult()

    # Pictures and clips

    def stream_image(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[ImageResult]:
        """Makes `n` pictures. Options: see `MediaFront.requests`."""
        front = self._media_front("image", model)
        requests = front.requests(prompt, terms or CallTerms(), **options)

        def assemble(events: Sequence[Event]) -> ImageResult:
            pixels = {event.request_id: event.pixels for event in events if isinstance(event, Image)}
            pictures = tuple(Picture(pixels[request.id], request.seed) for request in requests)
            return ImageResult(front.name, pictures, tuple(e for e in events if isinstance(e, Finished)))

        return self._start(requests, assemble)

    def stream_video(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[VideoResult]:
        """Makes one clip. Options: see `MediaFront.requests`, without `n`."""
        front = self._media_front("video", model)
        (request,) = front.requests(prompt, terms or CallTerms(), **options)

        def assemble(events: Sequence[Event]) -> VideoResult:
            (video,) = [event for event in events if isinstance(event, Video)]
            (finished,) = [event for event in events if isinstance(event, Finished)]
            return VideoResult(front.name, video.pixels, video.fps, request.seed, finished)

        return self._start([request], assemble)

    def image(self, prompt: str, **options: Any) -> ImageResult:
        return self.stream_image(prompt, **options).result()

    async def aimage(self, prompt: str, **options: Any) -> ImageResult:
        return await self.stream_image(prompt, **options).aresult()

    def video(self, prompt: str, **options: Any) -> VideoResult:
        return self.stream_video(prompt, **options).result()

    async def avideo(self, prompt: str, **options: Any) -> VideoResult:
        return await self.stream_video(prompt, **options).aresult()

    # Inside

    def _front(self, source: Any) -> TextFront | MediaFront:
        if source.kind == "language":
            return TextFront(source.name, source.path)
        shared = self.loads.shared.get(source.name)
        return MediaFront(source.name, source.path, shared.path if shared else None)

    def _text_front(self, model: str | None) -> TextFront:
        front = self._pick("text", model)
        assert isinstance(front, TextFront)
        return front

    def _media_front(self, kind: str, model: str | None) -> MediaFront:
        front = self._pick(kind, model)
        assert isinstance(front, MediaFront)
        return front

    def _pick(self, kind: str, model: str | None) -> TextFront | MediaFront:
        """The served model of that name, or the only one of its kind."""
        able = {name: front for name, front in self.fronts.items() if front.kind == kind}
        if model is None:
            if len(able) != 1:
                served = ", ".join(able) or "none"
                raise InvalidRequest("model", f"Name a {kind} model with 'model'. Served: {served}.")
            return next(iter(able.values()))
        if model not in self.fronts:
            raise ModelNotFound(f"The model '{model}' does not exist. Served: {', '.join(self.fronts)}.")
        if model not in able:
            raise InvalidRequest(
                "model", f"'{model}' makes no {kind}. Served models that do: {', '.join(able) or 'none'}."
            )
        return able[model]

    def _start_text(
        self, front: TextFront, requests: Sequence[TextRequest], *, has_tools: bool = False
    ) -> Stream[Completion]:
        def assemble(events: Sequence[Event]) -> Completion:
            return Completion(front.name, assemble_answers(front, requests, events, has_tools=has_tools))

        for request in requests:
            self._texts.watch(request, front)
        return self._start(requests, assemble)

    def _start(self, requests: Sequence[Request], assemble: Any) -> Stream[Any]:
        stream: Stream[Any] = Stream([request.id for request in requests], assemble, self._loop.abort)
        with self._lock:
            self._streams.update(dict.fromkeys(stream.request_ids, stream))
        for request in requests:
            self._loop.submit(request)
        return stream

    def _build(self, emit: Any) -> Scheduler:
        self._composition = compose.build(self.loads, emit, self.trace)
        return self._composition.scheduler

    def _deliver(self, event: Event) -> None:
        """On the loop's thread: text goes by the detokenizer, all else straight to its stream."""
        if not self._texts.take(event):
            self._push(event)

    def _push(self, event: Event) -> None:
        stream = self._streams.get(event.request_id)
        if stream is None:
            return
        if isinstance(event, Finished | Failed):
            with self._lock:
                self._streams.pop(event.request_id, None)
        stream.push(event)

    def _check(self) -> None:
        if self._composition is not None:
            self._composition.check()
