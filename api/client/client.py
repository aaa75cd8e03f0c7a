"""The engine of a server, as if it were here: `Client("http://127.0.0.1:8000")`, then the calls of `Engine`."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import to_builtins

from hemiola.core.errors import HemiolaError, InvalidRequest, RequestAborted
from hemiola.core.events import Event, Finished, Image

from ..asking import Asking, Messages, Prompt
from ..front.terms import COMPLETION_MAX_TOKENS, CallTerms, check_options
from ..results import Completion, ImageResult, Picture, Scores, VideoResult
from ..stream import Stream
from ..wakeups import Wakeups
from .answers import AnswerReader, CompletionReader
from .clips import ClipReader, clip_body
from .connection import Connection, to_json
from .models import ServedModels
from .pictures import PictureReader, picture_bodies
from .programs import ProgramNews, read_scores, score_graph
from .retries import MAX_RETRIES
from .scores import read_echoed_scores
from .stream import ClientStream
from .terms import request_ids, term_fields
from .text import Push, chat_bodies, completion_bodies, is_thinking, read_answer

log = logging.getLogger(__name__)

Work = Callable[[Push], Coroutine[Any, Any, None]]


class Client(Asking):
    """Asks a server over HTTP: the same calls, events and results as of an `Engine`, from any thread or coroutine.

    Of a Hemiola server it can ask everything; of others with an OpenAI API, chats, completions and pictures, in the
    words of that API. Options beyond it are refused, unless the server is known to honour them: see `extensions`.
    Events differ in this: tokens have no ids (-1), text and log-probabilities come as the server cuts them, a clip's
    progress is in percent, and its frames have been through a video codec.

    Args:
        url: of the server, with or without `/v1`.
        api_key: if the server wants one.
        timeout: seconds without a byte after which an answer is given up; a server's streams always say something.
        base_url: the URL, as OpenAI's client calls it.
        extensions: whether the server honours options beyond the OpenAI API; None: Hemiola, vLLM and SGLang do, as
            far as they know them, and are known by what they say of their models.
        max_retries: how often a request is sent once more, if no connection could be made or the server says that it
            took nothing (429 and 503: too much to do, or the engine starts again). When, is up to the server's
            `Retry-After`, or after 0.5 s, 1 s and so on, up to 8 s; a server that wishes for more than 2 minutes is
            not asked again. Whatever else happens is told at once: what a server may have begun is not asked for twice.

    Raises:
        InvalidRequest: the URL is none, or one of the others cannot be.

    Calls raise what the server says as the engine's errors, and those of `hemiola.api.client.errors`.
    Use it as a context manager, or `close()` it.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        *,
        base_url: str | None = None,
        extensions: bool | None = None,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        if (url is None) == (base_url is None):
            raise InvalidRequest("url", "Say where the server is: Client('http://...'), or Client(base_url=...).")
        self._connection = Connection(url or base_url or "", api_key, timeout, max_retries)
        self._models = ServedModels(self._connection, extensions)
        self._wakeups = Wakeups()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what runs and closes the connections. The client takes no more calls."""
        self._connection.close()

    # The calls

    def stream_chat(
        self, messages: Messages, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]:
        """Answers a conversation (a string is one user message). Options: see `TextFront.chat_requests`."""
        terms = terms or CallTerms()
        bodies = chat_bodies(messages, terms, model=model, **options)
        readers = [AnswerReader(request_id) for request_id in request_ids(terms, len(bodies))]

        def work(index: int) -> Work:
            path, body = "/v1/chat/completions", to_json(bodies[index])
            return self._checked(
                path, bodies[index], lambda push: read_answer(self._connection, path, body, readers[index], push)
            )

        return self._start_text(terms, [work(i) for i in range(len(bodies))], readers, len(bodies))

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
        terms = terms or CallTerms()
        options = {"max_tokens": COMPLETION_MAX_TOKENS, **options}
        bodies = completion_bodies(prompt, terms, model=model, **options)
        ids = request_ids(terms, len(bodies))
        readers = [CompletionReader(ids[i], is_thinking=is_thinking(body)) for i, body in enumerate(bodies)]

        def work(index: int) -> Work:
            to_json(bodies[index])  # what cannot be said is said now

            async def complete(push: Push) -> None:
                body = bodies[index]
                if body["max_tokens"] is None:
                    body["max_tokens"] = await self._models.context_len(model)
                await read_answer(self._connection, "/v1/completions", to_json(body), readers[index], push)

            return self._checked("/v1/completions", bodies[index], complete)

        works = [work(i) for i in range(len(bodies))]
        return self._start_text(terms, works, readers, options.get("n") or 1)

    def stream_image(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[ImageResult]:
        """Makes `n` pictures. Options: see `MediaFront.requests`."""
        terms = terms or CallTerms()
        bodies = picture_bodies(prompt, terms, model=model, **options)
        ids = request_ids(terms, len(bodies))
        readers = [PictureReader(request_id, body) for request_id, body in zip(ids, bodies, strict=True)]

        def work(index: int) -> Work:
            body = to_json(bodies[index])
            return self._checked(
                "/v1/images/generations",
                bodies[index],
                lambda push: readers[index].read(self._connection, body, push),
            )

        def assemble(events: Sequence[Event]) -> ImageResult:
            pixels = {event.request_id: event.pixels for event in events if isinstance(event, Image)}
            pictures = tuple(
                Picture(pixels[request_id], reader.seed) for request_id, reader in zip(ids, readers, strict=True)
            )
            return ImageResult(readers[0].model, pictures, tuple(e for e in events if isinstance(e, Finished)))

        return self._start(terms, [work(i) for i in range(len(bodies))], assemble)

    def stream_video(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[VideoResult]:
        """Makes one clip. Options: see `MediaFront.requests`, without `n`."""
        terms = terms or CallTerms()
        said = clip_body(prompt, terms, model=model, **options)
        body = to_json(said)
        reader = ClipReader(terms.id)

        def assemble(events: Sequence[Event]) -> VideoResult:
            assert reader.result is not None, "a clip that has finished is here"
            return reader.result

        work = self._checked("/v1/videos", said, lambda push: reader.read(self._connection, body, push))
        return self._start(terms, [work], assemble)

    # Programs

    def stream_scores(
        self, choices: Sequence[str], *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Scores]:
        """What the model thinks of each choice, exactly: a program of one `select`. Options: see `score_requests`.

        Other servers score what continues plain text, if their completions have `echo` with `logprobs`.
        """
        terms = terms or CallTerms()
        check_options(options, score_graph)
        graph = score_graph(choices, model, **options)
        body = to_json({"program": to_builtins(graph), "stream": True, **term_fields(terms)})
        found: list[Scores] = []

        async def work(push: Push) -> None:
            if await self._models.is_hemiola():
                await read_scores(self._connection, body, terms.id, push, found.append)
            else:
                await read_echoed_scores(self._connection, choices, model, terms.id, push, found.append, **options)

        return self._start(terms, [work], lambda events: found[0])

    def stream_program(self, name: str, body: bytes) -> ProgramNews:
        """What the server says of a program, which begins now. `Program.on(client, remote=True)` is the way to it.

        Args:
            name: that no call of this client has.
            body: of POST /v1/programs, streamed.
        """
        return ProgramNews(self._connection, name, body)

    # Inside

    def _checked(self, path: str, body: Mapping[str, Any], work: Work) -> Work:
        """The same work, once the server is known to honour all that the body says."""

        async def checked(push: Push) -> None:
            await self._models.check(path, body)
            await work(push)

        return checked

    def _start_text(
        self, terms: CallTerms, works: Sequence[Work], readers: Sequence[AnswerReader], answers_per_prompt: int
    ) -> Stream[Completion]:
        def assemble(events: Sequence[Event]) -> Completion:
            answers = tuple(reader.answer(events) for reader in readers)
            return Completion(readers[0].model, answers, answers_per_prompt)

        return self._start(terms, works, assemble)

    def _start(self, terms: CallTerms, works: Sequence[Work], assemble: Any) -> Stream[Any]:
        ids = request_ids(terms, len(works))
        stream: ClientStream[Any] = ClientStream(ids, assemble, self._connection.cancel, self._wakeups)
        for request_id, work in zip(ids, works, strict=True):
            on_cancelled = partial(stream.fail, request_id, RequestAborted("The request was aborted."))
            self._connection.start(request_id, _follow(stream, request_id, work), on_cancelled)
        return stream


async def _follow(stream: ClientStream[Any], request_id: str, work: Work) -> None:
    """Runs one request to its end, whatever that is."""
    try:
        await work(stream.push)
    except HemiolaError as error:
        stream.fail(request_id, error)
    except Exception as error:
        log.exception("A request could not be followed.")
        stream.fail(request_id, HemiolaError(f"{type(error).__name__}: {error}"))
