"""POST /tokenize and /detokenize: texts or conversations to token ids and back, as the model's own prompts are made."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hemiola.core.errors import InvalidRequest

from ..front.terms import check_integer, check_text, wrong_type
from ..front.text import TextFront
from ..front.tools import offered_tools
from .body import json_response, read_object
from .fields import Fields, FieldTable
from .server import server_of
from .text_asks import read_mapping, read_model
from .text_fields import DETOKENIZE_FIELDS, TOKENIZE_FIELDS

router = APIRouter()

MAX_BATCH = 1024


@router.post("/tokenize")
@router.post("/v1/tokenize")
async def tokenize(request: Request) -> Response:
    """Of a prompt, several, or a conversation."""
    fields = Fields(await read_object(request), is_form=False)
    front = server_of(request).text_front(read_model(fields))
    has_names = fields.boolean("return_token_strs") or False
    prompts, is_batch, adds = _read_prompts(fields, front)
    _refuse_rest(request, fields, TOKENIZE_FIELDS)
    tokens = [front.tokenizer.encode(prompt, add_special_tokens=adds) for prompt in prompts]
    names = [[front.tokenizer.token(token_id) for token_id in ids] for ids in tokens] if has_names else None
    counts = [len(ids) for ids in tokens]
    return json_response(
        {
            "count": counts if is_batch else counts[0],
            "max_model_len": front.context_len,
            "tokens": tokens if is_batch else tokens[0],
            "token_strs": names if is_batch or names is None else names[0],
        }
    )


@router.post("/detokenize")
@router.post("/v1/detokenize")
async def detokenize(request: Request) -> Response:
    """The text, under both names that clients look for."""
    fields = Fields(await read_object(request), is_form=False)
    front = server_of(request).text_front(read_model(fields))
    found = fields.given("tokens")
    if found is None:
        raise InvalidRequest("tokens", "Missing required parameter: 'tokens'.", "missing_required_parameter")
    tokens = found[1]
    if not isinstance(tokens, list):
        raise wrong_type("tokens", "an array of integers", tokens)
    _refuse_rest(request, fields, DETOKENIZE_FIELDS)
    largest = front.tokenizer.vocab_size - 1
    ids = [check_integer(f"tokens[{i}]", token_id, 0, largest) for i, token_id in enumerate(tokens)]
    text = front.tokenizer.decode(ids, skip_special_tokens=False)
    return json_response({"prompt": text, "text": text})


def _read_prompts(fields: Fields, front: TextFront) -> tuple[list[str], bool, bool]:
    """The texts, whether they came in a list, and whether special tokens are added."""
    adds = fields.boolean("add_special_tokens")
    found, messages = fields.given("prompt"), fields.given("messages")
    if (found is None) == (messages is None):
        text = "Missing required parameter: 'prompt' or 'messages', and not both of them."
        raise InvalidRequest("prompt", text, "missing_required_parameter")
    if messages is not None:
        return [_rendered(fields, front, messages[1])], False, adds or False
    assert found is not None
    prompts = [found[1]] if isinstance(found[1], str) else found[1]
    if not isinstance(prompts, list):
        raise wrong_type("prompt", "a string or an array of strings", prompts)
    if not 0 < len(prompts) <= MAX_BATCH:
        raise InvalidRequest("prompt", f"Invalid 'prompt': 1 to {MAX_BATCH} strings are allowed.", "invalid_value")
    return (
        [check_text(f"prompt[{i}]", prompt) for i, prompt in enumerate(prompts)],
        found[1] is prompts,
        adds is not False,
    )


def _rendered(fields: Fields, front: TextFront, messages: Any) -> str:
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array", messages)
    _, tools = fields.given("tools") or ("", None)
    adds_prompt = fields.boolean("add_generation_prompt") is not False
    options = {"enable_thinking": False, **(read_mapping(fields, "chat_template_kwargs") or {})}
    return front.render(messages, tools=offered_tools(tools), options=options, add_generation_prompt=adds_prompt)


def _refuse_rest(request: Request, fields: Fields, table: FieldTable) -> None:
    fields.refuse_rest(table, is_strict=server_of(request).settings.strict_params)
