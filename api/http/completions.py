"""POST /v1/completions: what follows a text or token ids, at once or in chunks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import InvalidRequest
from hemiola.core.request import TextRequest

from ..front.terms import COMPLETION_MAX_TOKENS, CallTerms, wrong_type
from ..front.text import TextFront
from ..results import Answer, Completion
from ..stream import Stream
from .body import json_response, read_object
from .chunks import ChunkParts, finished, started, streamed
from .completion_chunks import CompletionChunks
from .fields import Fields
from .logprobs import CompletionLogprobs
from .server import server_of
from .text_asks import Streaming, read_model, read_sampling, read_streaming, read_terms
from .text_fields import COMPLETION_FIELDS
from .usage import usage_json

router = APIRouter()

MAX_LOGPROBS = 5


@dataclass(frozen=True, slots=True)
class CompletionAsk:
    """What was asked. `model` is as it is to be called in the answer; `options` are for `Calls.stream_complete`."""

    model: str
    front: TextFront
    prompt: Any
    terms: CallTerms
    streaming: Streaming
    has_echo: bool
    options: dict[str, Any]


@router.post("/v1/completions")
async def create(request: Request) -> Response:
    """Validates before the response begins, then streams or waits."""
    ask = _read_ask(Fields(await read_object(request), is_form=False), request)
    created = int(time.time())
    stream = await started(request, lambda: _begin(request, ask))
    answer_id = f"cmpl-{ask.terms.id}"
    requests = [each for each in stream.requests if isinstance(each, TextRequest)]
    echoes = _echoes(ask, requests)
    if not ask.streaming.is_on:
        return json_response(_body(answer_id, created, ask, echoes, await finished(request, stream)))
    has_usage = ask.streaming.include_usage
    parts = ChunkParts(answer_id, "text_completion", created, ask.model, has_usage=has_usage)
    chunks = CompletionChunks(
        parts, ask.front, requests, echoes, answers_per_prompt=ask.options["n"], has_usage=has_usage
    )
    return await streamed(request, stream, chunks)


def _read_ask(fields: Fields, request: Request) -> CompletionAsk:
    server = server_of(request)
    alias = read_model(fields)
    prompt = _read_prompt(fields)
    front = server.text_front(alias)
    options = read_sampling(fields, "max_tokens", COMPLETION_MAX_TOKENS, front.context_len)
    options["logprobs"] = fields.integer("logprobs", smallest=0, largest=MAX_LOGPROBS)
    options["add_special_tokens"] = fields.boolean("add_special_tokens") is not False
    has_echo = fields.boolean("echo") or False
    if has_echo and options["logprobs"] is not None:
        text = "Unsupported parameter: 'echo' with 'logprobs' is not supported here: prompts have no log-probabilities."
        raise InvalidRequest("echo", text, "unsupported_parameter")
    ask = CompletionAsk(
        model=alias or front.name,
        front=front,
        prompt=prompt,
        terms=read_terms(fields, request),
        streaming=read_streaming(fields),
        has_echo=has_echo,
        options=options,
    )
    fields.refuse_rest(COMPLETION_FIELDS, is_strict=server.settings.strict_params)
    return ask


def _read_prompt(fields: Fields) -> Any:
    found = fields.given("prompt")
    if found is None:
        raise InvalidRequest("prompt", "Missing required parameter: 'prompt'.", "missing_required_parameter")
    if not isinstance(found[1], str | list):
        raise wrong_type("prompt", "a string or an array", found[1])
    return found[1]


def _begin(request: Request, ask: CompletionAsk) -> Stream[Completion]:
    calls = server_of(request).calls
    return calls.stream_complete(ask.prompt, model=ask.front.name, terms=ask.terms, **ask.options)


def _echoes(ask: CompletionAsk, requests: Sequence[TextRequest]) -> list[str]:
    """The prompts, in the callers' own words where they were words."""
    if not ask.has_echo:
        return [""] * len(requests)
    texts = [ask.prompt] if isinstance(ask.prompt, str) else ask.prompt
    if all(isinstance(text, str) for text in texts):
        return [texts[i // ask.options["n"]] for i in range(len(requests))]
    return [ask.front.tokenizer.decode(request.token_ids) for request in requests]


def _body(
    answer_id: str, created: int, ask: CompletionAsk, echoes: Sequence[str], completion: Completion
) -> dict[str, Any]:
    choices = [
        _choice(i, answer, ask, echo) for i, (answer, echo) in enumerate(zip(completion.answers, echoes, strict=True))
    ]
    return {
        "id": answer_id,
        "object": "text_completion",
        "created": created,
        "model": ask.model,
        "choices": choices,
        "usage": usage_json(completion.usage),
    }


def _choice(index: int, answer: Answer, ask: CompletionAsk, echo: str) -> dict[str, Any]:
    logprobs = None
    if ask.options["logprobs"] is not None:
        logprobs = CompletionLogprobs(ask.front.tokenizer, len(echo)).of(answer.tokens)
    return {
        "index": index,
        "text": echo + answer.raw_text,
        "logprobs": logprobs,
        "finish_reason": answer.finish_reason,
        "stop_reason": None if answer.stop_reason in ask.front.end_ids else answer.stop_reason,
    }
