"""Programs over HTTP: one request for a whole program, whose nodes' results come as server-sent events."""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from hemiola.core.errors import HemiolaError, InvalidRequest, RequestAborted
from hemiola.core.events import Finished, Pixels, Usage

from ..front.terms import check_text
from ..programs import news
from ..programs.graph import Outcome
from ..programs.schema import VERSION, ProgramGraph, SelectStep, Step, TurnStep
from ..results import ImageResult, Picture, Score, Scores, VideoResult
from .clips import FetchedVideo
from .connection import Connection, read_json
from .decode import decode_clip, decode_picture
from .errors import ConnectionLost, error_of
from .text import Push, streamed

_PATH = "/v1/programs"
_LETTING_GO_S = 10.0
_decode = msgspec.json.Decoder(news.News).decode


async def follow_program(connection: Connection, body: bytes, tell: Callable[[news.News], None]) -> None:
    """Has the program run, and tells all that the server says of it, to the end.

    Raises:
        HemiolaError: see `Connection.request`, and what the stream itself says of the program as a whole.
        TimeoutError: the program's time limit has passed.
    """
    is_over = False
    async with streamed(connection, _PATH, body) as frames:
        async for frame in frames:
            if not frame.data:
                continue
            if frame.event == "error":
                told = read_json(frame.data)
                raise _failure(told.get("error") if isinstance(told, Mapping) else None)
            try:
                said: news.News = _decode(frame.data)
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"The server sent an event that is none: {error}.") from error
            is_over = is_over or isinstance(said, news.ProgramFinished)
            tell(said)
    if not is_over:
        raise ConnectionLost("The server's stream ended before the program did.")


def _failure(told: object) -> Exception:
    error = error_of(told, 200)
    return TimeoutError(error.message) if error.code == "timeout" else error


class ProgramNews:
    """What a server says of one program; read once, with `async for`, on the loop that it was made on.

    Leaving early ends the program.
    """

    def __init__(self, connection: Connection, name: str, body: bytes) -> None:
        self._connection = connection
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Queue[news.News | BaseException | None] = asyncio.Queue()
        self._is_over = False
        connection.start(name, self._follow(body), lambda: self._tell(RequestAborted("The program was aborted.")))

    async def __aiter__(self) -> AsyncIterator[news.News]:
        try:
            while (said := await self._told.get()) is not None:
                if isinstance(said, BaseException):
                    self._is_over = True
                    raise said
                yield said
            self._is_over = True
        finally:
            if not self._is_over:
                self._connection.cancel(self._name)
                await self._ended()

    async def _ended(self) -> None:
        """Until the connection is closed, so that the server knows."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LETTING_GO_S):
                while isinstance(await self._told.get(), msgspec.Struct):
                    continue

    # On the client's thread

    async def _follow(self, body: bytes) -> None:
        try:
            await follow_program(self._connection, body, self._tell)
        except (HemiolaError, TimeoutError) as error:
            self._tell(error)
        else:
            self._tell(None)

    def _tell(self, said: news.News | BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._told.put_nowait, said)


# What nodes gave


async def outcome_of(told: news.NodeFinished) -> Outcome:
    """What a node gave, as it would have been here.

    Raises:
        ConnectionLost: pictures or clips are none.
    """
    if told.kind == "image":
        return Outcome(await asyncio.to_thread(_pictures, told))
    if told.kind == "video":
        return Outcome(await asyncio.to_thread(_clip, told))
    scores = scores_of(told) if told.kind == "select" else None
    return Outcome(told.value, told.text, told.raw, told.reasoning, scores=scores)


def scores_of(told: news.NodeFinished) -> Scores:
    """Of a select."""
    scores = tuple(Score(s.choice, s.logprobs, s.tokens, s.unconditional) for s in told.scores)
    return Scores(told.model, scores, told.usage or Usage())


def _pictures(told: news.NodeFinished) -> ImageResult:
    pictures = tuple(Picture(decode_picture(_bytes(file.b64_json)), file.seed) for file in told.images)
    ids = [*told.request_ids[-len(pictures) :], *[""] * len(pictures)]
    finished = tuple(Finished(ids[i], "done", file.usage) for i, file in enumerate(told.images))
    return ImageResult(told.model, pictures, finished)


def _clip(told: news.NodeFinished) -> VideoResult:
    file = told.video
    if file is None:
        raise ConnectionLost("The server sent no clip.")
    finished = Finished(told.request_ids[-1] if told.request_ids else "", "done", file.usage)
    if file.b64_json is not None:
        mp4 = _bytes(file.b64_json)
        pixels, fps = decode_clip(mp4)
        return FetchedVideo(told.model, pixels, fps, file.seed, finished, mp4)
    frames = b"".join(decode_picture(_bytes(frame)).data for frame in file.frames)
    pixels = Pixels(frames, len(file.frames), file.height, file.width)
    return VideoResult(told.model, pixels, file.fps, file.seed, finished)


def _bytes(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error as error:
        raise ConnectionLost("The server sent a file that is not base64.") from error


# Scores: a program of one node


def score_graph(
    choices: Sequence[str],
    model: str | None,
    *,
    messages: str | Sequence[Mapping[str, Any]] | None = None,
    prompt: str | None = None,
    continue_final_message: bool = False,
    enable_thinking: bool = False,
    unconditional: bool = False,
) -> ProgramGraph:
    """A program that selects. Options: as `score_requests` has them.

    Raises:
        InvalidRequest: they cannot be said in a program.
    """
    if isinstance(choices, str) or not choices or not all(isinstance(choice, str) and choice for choice in choices):
        raise InvalidRequest("choices", "Invalid 'choices'. Allowed: at least one string, none empty.")
    for choice in choices:
        check_text("choices", choice)
    if (messages is None) == (prompt is None):
        raise InvalidRequest("prompt", "Say either 'messages' or 'prompt': choices answer or continue one of them.")
    if enable_thinking:
        raise InvalidRequest("enable_thinking", "Unsupported value for 'enable_thinking': true. Allowed here: false.")
    select = SelectStep("choice", tuple(choices), "unconditional" if unconditional else "mean", model)
    if messages is None:
        return ProgramGraph(VERSION, (TurnStep(parts=(prompt or "", select)),))
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    steps: list[Step] = [_turn(message) for message in given]
    goes_on = TurnStep(role="" if continue_final_message else "assistant", parts=(select,))
    return ProgramGraph(VERSION, (*steps, goes_on))


def _turn(message: Mapping[str, Any]) -> TurnStep:
    role, content = message.get("role"), message.get("content")
    others = [name for name, value in message.items() if name not in ("role", "content") and value is not None]
    if role not in ("system", "user", "assistant") or not isinstance(content, str) or others:
        what = f"with {', '.join(map(str, others))}" if others else f"of role {role!r}"
        text = f"A message {what} cannot be sent with choices. Allowed: texts of system, user and assistant."
        raise InvalidRequest("messages", text, "unsupported_value")
    return TurnStep(role=role, parts=content)


async def read_scores(
    connection: Connection, body: bytes, request_id: str, push: Push, take: Callable[[Scores], None]
) -> None:
    """Runs a program of one select, and tells its end.

    Raises:
        HemiolaError: see `follow_program`, and what the server says of the select.
    """
    ends: list[news.NodeFinished | news.NodeFailed] = []

    def tell(said: news.News) -> None:
        if isinstance(said, news.NodeFinished | news.NodeFailed):
            ends.append(said)

    await follow_program(connection, body, tell)
    (end,) = ends
    if isinstance(end, news.NodeFailed):
        raise error_of(msgspec.to_builtins(end.error), end.status)
    take(scores_of(end))
    push(Finished(request_id, "stop", end.usage or Usage()))
