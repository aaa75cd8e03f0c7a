"""How each kind of node asks: by the methods that engines and clients share. Knows no scheduler and no server."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from hemiola.core.errors import HemiolaError, InvalidRequest, Overloaded
from hemiola.core.events import Event, Failed, Progress, Token, Usage

from ..front.terms import CallTerms, engine_clock
from ..results import Answer, Completion, ImageResult, Scores, VideoResult
from ..stream import Stream
from .execution import Execution, Work
from .expressions import Gen, Media, Select, as_written
from .graph import Node, Outcome
from .scoring import SCORINGS
from .tools import Tool, call_named
from .turns import Turn, as_messages, is_conversation
from .values import text_of

T = TypeVar("T")
_LETTING_GO_S = 10.0
_QUEUE_WAIT_S = 0.1
# Longer prompts are rendered and tokenized on a thread: a server's loop has others to serve.
_INLINE_CHARACTERS = 32 << 10


class Asked(Protocol):
    """What a program needs of an engine or a client: four methods of `Calls`."""

    def stream_chat(
        self, messages: Any, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]: ...

    def stream_complete(
        self, prompt: Any, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[Completion]: ...

    def stream_image(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[ImageResult]: ...

    def stream_video(
        self, prompt: str, *, model: str | None = None, terms: CallTerms | None = None, **options: Any
    ) -> Stream[VideoResult]: ...


def text_work(asked: Gen, turns: Sequence[Turn]) -> Work:
    """Writes the end of the last turn; that is the assistant's, or plain text."""

    async def work(execution: Execution, node: Node) -> Outcome:
        for attempt in range(asked.retries + 1):
            if attempt:
                execution.tell("started", node)
            context, options = {"max_tokens": None} | _context(turns, node), _options(asked, attempt)
            completion, before = await _answer(execution, node, asked.tools, asked.max_rounds, context | options)
            try:
                return _text_outcome(asked, completion, before)
            except HemiolaError:
                if attempt == asked.retries:
                    raise
        raise AssertionError("The last attempt either returned or raised.")

    return work


def select_work(asked: Select, turns: Sequence[Turn]) -> Work:
    """Ends the last turn with the likeliest of the choices; the first of them, if several are."""

    async def work(execution: Execution, node: Node) -> Outcome:
        stream_scores = getattr(execution.calls, "stream_scores", None)
        if stream_scores is None:
            text = f"'{asked.name}': {type(execution.calls).__name__} scores no choices, as select needs. Engines do."
            raise InvalidRequest("select", text)
        options = _context(turns, node) | ({"unconditional": True} if asked.scoring == "unconditional" else {})
        scores: Scores = await _given(execution, node, stream_scores, asked.choices, model=asked.model, **options)
        node.usage = scores.usage
        best = SCORINGS[asked.scoring](scores.scores)
        execution.tell("text", node, text=best.choice)
        return Outcome(best.choice, best.choice, best.choice, scores=scores)

    return work


def media_work(asked: Media) -> Work:
    """Makes pictures or a clip."""

    async def work(execution: Execution, node: Node) -> Outcome:
        calls: Asked = execution.calls
        prompt = text_of(asked.prompt)
        try:
            if asked.kind == "image":
                pictures = await _given(execution, node, calls.stream_image, prompt, **asked.options)
                node.usage = _sum([finished.usage for finished in pictures.finished])
                return Outcome(pictures)
            clip = await _given(execution, node, calls.stream_video, prompt, **asked.options)
            node.usage = clip.finished.usage
            return Outcome(clip)
        except InvalidRequest as error:
            raise as_written(error) from error

    return work


async def _answer(
    execution: Execution, node: Node, tools: Sequence[Tool], max_rounds: int, options: dict[str, Any]
) -> tuple[Completion, list[dict[str, Any]]]:
    """The answer, after as many rounds of calls as the model wants; and the messages of these rounds."""
    calls: Asked = execution.calls
    if tools and ("messages" not in options or "continue_final_message" in options):
        text = f"'{node.name}' has tools: it has to begin a turn of the assistant, in a conversation."
        raise InvalidRequest("tools", text)
    ask = calls.stream_chat if "messages" in options else calls.stream_complete
    offered = {"tools": [tool.schema for tool in tools]} if tools else {}
    before: list[dict[str, Any]] = []
    for _ in range(max_rounds + 1):
        if before:
            offered["messages"] = [*options["messages"], *before]
        completion: Completion = await _given(execution, node, ask, **options | offered)
        node.usage = completion.usage
        answer = completion.answers[0]
        if not tools or not answer.tool_calls:
            return completion, before
        before += await _called({tool.name: tool for tool in tools}, answer)
    raise InvalidRequest("max_rounds", f"'{node.name}' called tools more than {max_rounds} times.")


async def _called(tools: dict[str, Tool], answer: Answer) -> list[dict[str, Any]]:
    """The model's calls as a message, and a message for what each gave; they run at once."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.tool_calls
    ]
    given = await asyncio.gather(*(call_named(tools, call.name, call.arguments) for call in answer.tool_calls))
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": text}
        for call, text in zip(answer.tool_calls, given, strict=True)
    ]
    return [{"role": "assistant", "content": answer.text, "tool_calls": calls}, *results]


def _options(asked: Gen, attempt: int) -> dict[str, Any]:
    """Of the call; another attempt has another seed."""
    options = dict(asked.options)
    if attempt and "seed" in options:
        options["seed"] += attempt
    if asked.n > 1:
        options["n"] = asked.n
    return options


def _context(turns: Sequence[Turn], node: Node) -> dict[str, Any]:
    """What was said, as the options of a call.

    Whole turns go as messages, and a turn that has begun as a message to be continued: so the prompt of every call
    begins with the prompts and answers before it, to the byte.
    """
    *before, current = turns
    if not is_conversation(turns):
        return {"prompt": current.raw}
    messages = as_messages(before)
    if not current.raw:
        return {"messages": messages}
    _check_goes_on(current, node)
    messages.append({"role": "assistant", "content": current.raw})
    return {"messages": messages, "continue_final_message": True}


def _check_goes_on(turn: Turn, node: Node) -> None:
    if "reasoning_content" in turn.message or turn.has_calls:
        text = f"'{node.name}' would continue a turn that has reasoning or calls. Let it begin a turn of its own."
        raise InvalidRequest(node.name, text)


def _text_outcome(asked: Gen, completion: Completion, before: Sequence[dict[str, Any]]) -> Outcome:
    if asked.n > 1:
        return Outcome([answer.text for answer in completion.answers], None)
    answer: Answer = completion.answers[0]
    value = answer.text if asked.read is None else asked.read(answer.text)
    return Outcome(value, answer.text, answer.raw_text, answer.reasoning, tuple(before))


async def _given(execution: Execution, node: Node, call: Callable[..., Stream[T]], *args: Any, **options: Any) -> T:
    """The result of a call. A queue that is full of the program's own requests is waited for."""
    while True:
        begin = partial(call, *args, terms=execution.terms(node), **options)
        is_long = len(str(args)) + len(str(options.get("messages", options.get("prompt", "")))) > _INLINE_CHARACTERS
        try:
            return await _follow(execution, node, await _begun(begin) if is_long else begin())
        except Overloaded:
            if not execution.has_others_at_work(node):
                raise
            await asyncio.sleep(_QUEUE_WAIT_S)


async def _begun(begin: Callable[[], Stream[T]]) -> Stream[T]:
    """What it gives, made on a thread; cancelled meanwhile, its requests have ended too."""
    task = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(HemiolaError):
            await _let_go(await task)
        raise


async def _follow(execution: Execution, node: Node, stream: Stream[T]) -> T:
    """The stream's result; its events become the program's. Being cancelled ends its requests."""
    node.request_ids += stream.request_ids
    node.submitted_s = node.submitted_s or engine_clock()
    try:
        async for events in stream.batches():
            if node.first_s is None:
                node.first_s = engine_clock()
            for event in events:
                _pass_on(execution, node, stream.request_ids, event)
            if any(isinstance(event, Failed) for event in events):
                break
        return await stream.aresult()
    except asyncio.CancelledError:
        await _let_go(stream)
        raise


async def _let_go(stream: Stream[Any]) -> None:
    """Cancels the requests and waits until they have ended, so that no step of theirs runs later."""
    stream.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LETTING_GO_S):
            async for _ in stream.batches():
                continue


def _pass_on(execution: Execution, node: Node, request_ids: Sequence[str], event: Event) -> None:
    index = request_ids.index(event.request_id) if len(request_ids) > 1 else 0
    if isinstance(event, Token) and event.text:
        execution.tell("text", node, text=event.text, index=index)
    elif isinstance(event, Progress):
        execution.tell("progress", node, index=index, done=event.done, total=event.total)


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(num_steps=sum(usage.num_steps for usage in usages))
