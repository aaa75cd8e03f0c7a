"""POST /v1/chat/completions: an answer to a conversation, at once or in chunks."""

import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.request import TextRequest

from ..results import Answer, Completion
from ..stream import Stream
from .body import json_response, read_object
from .chat_asks import ChatAsk, read_ask
from .chat_chunks import ChatChunks
from .chunks import ChunkParts, finished, started, streamed
from .fields import Fields
from .logprobs import chat_entry
from .server import server_of
from .usage import usage_json

router = APIRouter()


@router.post("/v1/chat/completions")
async def create(request: Request) -> Response:
    """Validates before the response begins, then streams or waits."""
    ask = read_ask(Fields(await read_object(request), is_form=False), request)
    created = int(time.time())
    stream = await started(request, lambda: _begin(request, ask))
    answer_id = f"chatcmpl-{ask.terms.id}"
    if not ask.streaming.is_on:
        return json_response(_body(answer_id, created, ask, await finished(request, stream)))
    has_usage = ask.streaming.include_usage
    parts = ChunkParts(answer_id, "chat.completion.chunk", created, ask.model, has_usage=has_usage)
    requests = [each for each in stream.requests if isinstance(each, TextRequest)]
    chunks = ChatChunks(parts, ask.front, requests, ask.shown, has_usage=has_usage)
    return await streamed(request, stream, chunks)


def _begin(request: Request, ask: ChatAsk) -> Stream[Completion]:
    calls = server_of(request).calls
    return calls.stream_chat(ask.messages, model=ask.front.name, terms=ask.terms, **ask.options)


def _body(answer_id: str, created: int, ask: ChatAsk, completion: Completion) -> dict[str, Any]:
    answers = completion.answers
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": ask.model,
        "choices": [_choice(i, answer, ask) for i, answer in enumerate(answers)],
        "usage": usage_json(completion.usage, sum(answer.reasoning_tokens for answer in answers)),
    }


def _choice(index: int, answer: Answer, ask: ChatAsk) -> dict[str, Any]:
    logprobs = None
    if ask.shown.has_logprobs:
        entries = [chat_entry(ask.front.tokenizer, token) for token in answer.tokens]
        logprobs = {"content": entries, "refusal": None}
    return {
        "index": index,
        "message": _message(answer, ask),
        "logprobs": logprobs,
        "finish_reason": answer.finish_reason,
        "stop_reason": None if answer.stop_reason in ask.front.end_ids else answer.stop_reason,
    }


def _message(answer: Answer, ask: ChatAsk) -> dict[str, Any]:
    calls = answer.tool_calls if ask.shown.is_parallel else answer.tool_calls[:1]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not answer.text else answer.text,
        "refusal": None,
    }
    if answer.reasoning and ask.shown.reasoning_field is not None:
        message[ask.shown.reasoning_field] = answer.reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message
