"""All that can be asked of an engine, whether it runs in this process or in another: the methods of `Engine`.

Every call becomes requests at the edge (api/front), goes to a backend, and comes back as a Stream of events.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from hemiola.core.errors import EngineDied, HemiolaError, InvalidRequest, ModelNotFound
from hemiola.core.events import Event, Failed, Finished, Image, Video
from hemiola.core.request import Request, TextRequest
from hemiola.core.tracing import StepRecord

from .asking import Asking, Messages, Prompt
from .front.media import NO_OPTIONS, MediaFront
from .front.scores import assemble_scores, score_requests
from .front.terms import COMPLETION_MAX_TOKENS, CallTerms, check_options
from .front.text import TextFront, assemble_answers
from .programs.forecasts import Forecasts
from .results import Completion, ImageResult, Picture, Scores, VideoResult, total_usage
from .stream import Stream
from .text_worker import TextWorker
from .wakeups import Wakeups

Front = TextFront | MediaFront

A_KIND = {"text": "text", "image": "an image", "video": "a video"}


class Backend(Protocol):
    """Where requests run. Events come back through `Calls._deliver`."""

    def submit(self, request: Request) -> None: ...
    def abort(self, request_id: str) -> None: ...
    def finish(self, request_id: str) -> None: ...
    def end_program(self, program: str) -> None: ...


class Calls(Asking):
    """Calls over one backend.

    Args:
        fronts: the edges of the served models, by name.
        backend: where requests run.

    Fields:
        forecasts: how long nodes of programs took here.
    """

    def __init__(self, fronts: Mapping[str, Front], backend: Backend) -> None:
        self.fronts = dict(fronts)
        self._backend = backend
        self._streams: dict[str, Stream[Any]] = {}
        self._lock = threading.Lock()
        self.forecasts = Forecasts()
        self._wakeups = Wakeups()
        self._texts = TextWorker(self._push, backend.finish)

    def close(self) -> None:
        """Ends the detokenizing thread. No more calls are taken."""
        self._texts.stop()

    def _deliver(self, event: Event) -> None:
        """Takes an event from the backend, in order; never blocks. Text goes by the detokenizer."""
        if not self._texts.take(event):
            self._push(event)

    # Text

    def stream_chat(
        self, messages: Messages, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]:
        """Answers a conversation (a string is one user message). Options: see `TextFront.chat_requests`."""
        front = self.text_front(model)
        check_options(options, front.chat_requests, front.requests)
        requests = front.chat_requests(messages, terms or CallTerms(), **options)
        has_tools = bool(options.get("tools")) and options.get("tool_choice") != "none"
        return self._start_text(front, requests, has_tools=has_tools, answers_per_prompt=options.get("n") or 1)

    def stream_complete(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        model: str | None = None,
        terms: CallTerms | None = None,
        **options: Any,
    ) -> Stream[Completion]:
        """Continues a text or token ids, or several of them. Options: see `TextFront.completion_requests`.

        By 16 tokens unless `max_tokens` says otherwise; None is as many as the context has room for.
        """
        front = self.text_front(model)
        check_options(options, front.completion_requests, front.requests)
        options = {"max_tokens": COMPLETION_MAX_TOKENS, **options}
        requests = front.completion_requests(prompt, terms or CallTerms(), **options)
        return self._start_text(front, requests, answers_per_prompt=options.get("n") or 1)

    def stream_scores(
        self, choices: Sequence[str], *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Scores]:
        """What the model thinks of each choice, exactly. Options: see `score_requests`."""
        front = self.text_front(model)
        check_options(options, score_requests)
        requests = score_requests(front, choices, terms or CallTerms(), **options)

        def assemble(events: Sequence[Event]) -> Scores:
            found = {event.request_id: event.usage for event in events if isinstance(event, Finished)}
            usages = [found[request.id] for request in requests]
            return Scores(front.name, assemble_scores(requests, choices, events), total_usage(usages, len(choices)))

        return self._start(requests, assemble)

    # Pictures and clips

    def stream_image(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[ImageResult]:
        """Makes `n` pictures. Options: see `MediaFront.requests`, without those of clips."""
        front = self.media_front("image", model)
        check_options(options, front.requests, without=NO_OPTIONS["image"])
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
        front = self.media_front("video", model)
        check_options(options, front.requests, without=NO_OPTIONS["video"])
        (request,) = front.requests(prompt, terms or CallTerms(), **options)

        def assemble(events: Sequence[Event]) -> VideoResult:
            (video,) = [event for event in events if isinstance(event, Video)]
            (finished,) = [event for event in events if isinstance(event, Finished)]
            return VideoResult(front.name, video.pixels, video.fps, request.seed, finished)

        return self._start([request], assemble)

    # The edges of the models

    def text_front(self, model: str | None) -> TextFront:
        """The edge of the served language model of that name, or of the only one.

        Raises:
            ModelNotFound, InvalidRequest: none is served under that name, or it makes something else.
        """
        front = self._pick("text", model)
        assert isinstance(front, TextFront)
        return front

    def media_front(self, kind: str, model: str | None) -> MediaFront:
        """The edge of the served model of that name, or of the only one that makes a `kind` ("image", "video").

        Raises:
            ModelNotFound, InvalidRequest: none is served under that name, or it makes something else.
        """
        front = self._pick(kind, model)
        assert isinstance(front, MediaFront)
        return front

    # What the engine does

    def end_program(self, program: str) -> None:
        """Of a program nothing is left and nothing will come: what the engine kept for it may go."""
        with suppress(EngineDied):  # then nothing is kept
            self._backend.end_program(program)

    def recent_steps(self, since_s: float) -> list[StepRecord]:
        """The steps that ended after `since_s` on the engine's clock, oldest first; none where no trace is kept."""
        return []

    # Inside

    def _pick(self, kind: str, model: str | None) -> TextFront | MediaFront:
        """The served model of that name, or the only one of its kind."""
        able = {name: front for name, front in self.fronts.items() if front.kind == kind}
        if model is None:
            if not able:
                served = ", ".join(f"'{name}'" for name in self.fronts)
                raise InvalidRequest("model", f"None of the served models makes {A_KIND[kind]}. Served: {served}.")
            if len(able) > 1:
                named = A_KIND[kind] if kind != "text" else "a text"
                raise InvalidRequest("model", f"Name {named} model with 'model'. Served: {', '.join(able)}.")
            return next(iter(able.values()))
        if model not in self.fronts:
            raise ModelNotFound(f"The model '{model}' does not exist. Served: {', '.join(self.fronts)}.")
        if model not in able:
            raise InvalidRequest(
                "model", f"'{model}' makes no {kind}. Served models that do: {', '.join(able) or 'none'}."
            )
        return able[model]

    def _start_text(
        self,
        front: TextFront,
        requests: Sequence[TextRequest],
        *,
        has_tools: bool = False,
        answers_per_prompt: int = 1,
    ) -> Stream[Completion]:
        def assemble(events: Sequence[Event]) -> Completion:
            answers = assemble_answers(front, requests, events, has_tools=has_tools)
            return Completion(front.name, answers, answers_per_prompt)

        return self._start(requests, assemble, front)

    def _start(self, requests: Sequence[Request], assemble: Any, front: TextFront | None = None) -> Stream[Any]:
        ids = [request.id for request in requests]
        stream: Stream[Any] = Stream(ids, assemble, self._backend.abort, wakeups=self._wakeups, requests=requests)
        with self._lock:
            taken = next((id for id in ids if id in self._streams), None)
            if taken is not None:
                raise InvalidRequest("id", f"Invalid 'id': '{taken}' is in use. Allowed: one of which no request runs.")
            self._streams.update(dict.fromkeys(ids, stream))
        for request in requests:
            if front is not None and isinstance(request, TextRequest):
                self._texts.watch(request, front)
        for num_sent, request in enumerate(requests):
            try:
                self._backend.submit(request)
            except HemiolaError:
                self._take_back(requests, num_sent)
                raise
        return stream

    def _take_back(self, requests: Sequence[Request], num_sent: int) -> None:
        """The backend refused one of them: those before it end, and nobody waits for any."""
        with self._lock:
            for request in requests:
                self._streams.pop(request.id, None)
        for request in requests[num_sent:]:
            self._texts.forget(request.id)
        for request in requests[:num_sent]:
            self._backend.abort(request.id)

    def _push(self, event: Event) -> None:
        stream = self._streams.get(event.request_id)
        if stream is None:
            return
        if isinstance(event, Finished | Failed):
            with self._lock:
                self._streams.pop(event.request_id, None)
        stream.push(event)
