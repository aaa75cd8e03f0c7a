"""An engine without models: answers are scripted, and arrive when the test says so or at once."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from hemiola.api.front.terms import CallTerms
from hemiola.api.results import Answer, Completion, ImageResult, Picture, VideoResult
from hemiola.api.stream import Stream
from hemiola.core.events import Event, Failed, Finished, Image, Pixels, Token, Usage, Video

PIXELS = Pixels(bytes(16 * 16 * 3), 1, 16, 16)


class Asked:
    """One call that came."""

    def __init__(self, kind: str, prompt: Any, options: dict[str, Any], stream: Stream[Any]) -> None:
        self.kind = kind
        self.prompt = prompt
        self.options = options
        self.stream = stream
        self.was_cancelled = False


class ScriptedCalls:
    """Has the methods that programs need.

    Args:
        answer: from (kind, prompt, options) to the answer's text; an exception fails the request; None never ends.

    Fields:
        asked: all calls, in order.
    """

    def __init__(self, answer: Callable[[str, Any, dict[str, Any]], str | Exception | None]) -> None:
        self._answer = answer
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._numbers = count()

    def stream_chat(
        self, messages: Any, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]:
        return self._ask("chat", messages, terms, options)

    def stream_complete(
        self, prompt: Any, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]:
        return self._ask("complete", prompt, terms, options)

    def stream_image(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[ImageResult]:
        return self._ask("image", prompt, terms, options)

    def stream_video(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[VideoResult]:
        return self._ask("video", prompt, terms, options)

    # What a test looks at

    def prompts(self, kind: str) -> list[Any]:
        return [asked.prompt for asked in self.asked if asked.kind == kind]

    async def has_been_asked(self, num_calls: int) -> None:
        """Waits for so many calls, five seconds at most."""
        async with asyncio.timeout(5):
            while len(self.asked) < num_calls:
                await asyncio.sleep(0.005)

    # Inside

    def _ask(self, kind: str, prompt: Any, terms: CallTerms | None, options: dict[str, Any]) -> Stream[Any]:
        assert terms is not None, "Programs name their requests."
        n = options.get("n", 1)
        ids = [terms.id] if n == 1 else [f"{terms.id}-{i}" for i in range(n)]

        def cancel(request_id: str) -> None:
            asked.was_cancelled = True
            stream.push(Failed(request_id, "request_aborted", "It was aborted."))

        stream: Stream[Any] = Stream(ids, lambda events: _result(kind, ids, events), cancel)
        asked = Asked(kind, prompt, {**options, "terms": terms}, stream)
        with self._lock:
            self.asked.append(asked)
        for index, request_id in enumerate(ids):
            answer = self._answer(kind, prompt, options | {"index": index})
            for event in _events(kind, request_id, answer):
                stream.push(event)
        return stream


def _events(kind: str, request_id: str, answer: str | Exception | None) -> list[Event]:
    if answer is None:
        return []
    if isinstance(answer, Exception):
        return [Failed(request_id, "step_failed", str(answer))]
    made: dict[str, Event] = {"image": Image(request_id, PIXELS), "video": Video(request_id, PIXELS, 8)}
    first = made.get(kind) or Token(request_id, 1, text=answer)
    return [first, Finished(request_id, "done" if kind in made else "stop", Usage(5, 3, 1, 1))]


def _result(kind: str, ids: Sequence[str], events: Sequence[Event]) -> Any:
    finished = tuple(event for event in events if isinstance(event, Finished))
    if kind == "image":
        return ImageResult("image", tuple(Picture(PIXELS, 0) for _ in ids), finished)
    if kind == "video":
        return VideoResult("video", PIXELS, 8, 0, finished[0])
    texts = [next(e.text for e in events if isinstance(e, Token) and e.request_id == request_id) for request_id in ids]
    answers = tuple(Answer(text, "stop", (1,), finished[0].usage, raw_text=text) for text in texts)
    return Completion("chat", answers, len(ids))
