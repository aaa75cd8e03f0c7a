"""Reads a chat request: names, types and bounds of its fields. Messages and tools are checked by the model's front."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from hemiola.core.errors import InvalidRequest

from ..front.terms import CallTerms, wrong_type
from ..front.text import MAX_TOP_LOGPROBS, TextFront
from .chat_chunks import Shown
from .fields import Fields
from .server import server_of
from .text_asks import Streaming, read_mapping, read_model, read_sampling, read_streaming, read_terms
from .text_fields import CHAT_FIELDS

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_STRUCTURED = ("json_object", "json_schema", "structural_tag")


@dataclass(frozen=True, slots=True)
class ChatAsk:
    """What was asked.

    Fields:
        model: as it is to be called in the answer.
        options: the rest, for `Calls.stream_chat`.
    """

    model: str
    front: TextFront
    messages: list[Any]
    terms: CallTerms
    streaming: Streaming
    shown: Shown
    options: dict[str, Any]


def read_ask(fields: Fields, request: Request) -> ChatAsk:
    """
    Raises:
        InvalidRequest: names the field, the value and what is allowed.
        ModelNotFound: nothing is served under that name.
    """
    server = server_of(request)
    alias = read_model(fields)
    messages = _read_messages(fields)
    front = server.text_front(alias)
    max_tokens_name = "max_completion_tokens" if fields.given("max_completion_tokens") else "max_tokens"
    fields.given("max_tokens")  # the other one wins over it
    options = read_sampling(fields, max_tokens_name, None, front.context_len)
    logprobs = _read_logprobs(fields)
    tools, tool_choice = _read_tools(fields)
    _refuse_structure(fields)
    is_parallel = fields.boolean("parallel_tool_calls") is not False
    shows_reasoning = fields.boolean("include_reasoning") is not False
    template = {**_read_thinking(fields), "continue_final_message": _read_continuing(fields)}
    ask = ChatAsk(
        model=alias or front.name,
        front=front,
        messages=messages,
        terms=read_terms(fields, request),
        streaming=read_streaming(fields),
        shown=Shown(
            reasoning_field=server.settings.reasoning_field if shows_reasoning else None,
            has_tools=bool(tools) and tool_choice != "none",
            is_parallel=is_parallel,
            has_logprobs=logprobs is not None,
        ),
        options={**options, **template, "logprobs": logprobs, "tools": tools, "tool_choice": tool_choice},
    )
    fields.refuse_rest(CHAT_FIELDS, is_strict=server.settings.strict_params)
    return ask


def _read_messages(fields: Fields) -> list[Any]:
    found = fields.given("messages")
    if found is None:
        raise InvalidRequest("messages", "Missing required parameter: 'messages'.", "missing_required_parameter")
    if not isinstance(found[1], list):
        raise wrong_type("messages", "an array", found[1])
    return found[1]


def _read_logprobs(fields: Fields) -> int | None:
    is_wanted = fields.boolean("logprobs")
    num_top = fields.integer("top_logprobs", smallest=0, largest=MAX_TOP_LOGPROBS)
    if num_top and not is_wanted:
        raise InvalidRequest("top_logprobs", "Invalid 'top_logprobs': only allowed when 'logprobs' is true.")
    return (num_top or 0) if is_wanted else None


def _read_tools(fields: Fields) -> tuple[list[Any], str | dict[str, Any] | None]:
    _, tools = fields.given("tools") or ("", [])
    if not isinstance(tools, list):
        raise wrong_type("tools", "an array", tools)
    _, choice = fields.given("tool_choice") or ("", None)
    if not isinstance(choice, str | dict | None):
        raise wrong_type("tool_choice", "a string or an object", choice)
    return tools, choice


def _refuse_structure(fields: Fields) -> None:
    """`response_format`: text is what there is."""
    form = read_mapping(fields, "response_format")
    if form is None or form.get("type") == "text":
        return
    kind = form.get("type")
    if kind in _STRUCTURED:
        text = f"Unsupported parameter: 'response_format' of type '{kind}' is not supported here. Allowed: text."
        raise InvalidRequest("response_format", text, "unsupported_parameter")
    raise InvalidRequest("response_format.type", "Invalid 'response_format.type'. Allowed: text.")


def _read_thinking(fields: Fields) -> dict[str, Any]:
    """What is said of reasoning, and whatever else the template is told."""
    effort = fields.choice("reasoning_effort", allowed=EFFORTS)
    given = dict(read_mapping(fields, "chat_template_kwargs") or {})
    thinking = given.pop("enable_thinking", None)
    if not isinstance(thinking, bool | None):
        raise wrong_type("chat_template_kwargs.enable_thinking", "a boolean", thinking)
    read: dict[str, Any] = {"template_options": given}
    if effort is not None:
        given.setdefault("reasoning_effort", effort)
        read["enable_thinking"] = effort != "none"
    if thinking is not None:
        read["enable_thinking"] = thinking
    return read


def _read_continuing(fields: Fields) -> bool:
    """Whether the last message is gone on with; then no new answer is begun, and otherwise one always is."""
    continues = fields.boolean("continue_final_message") or False
    begins = fields.boolean("add_generation_prompt")
    if begins is not None and begins is continues:
        text = f"Invalid 'add_generation_prompt': {'false' if continues else 'true'} is allowed here."
        raise InvalidRequest("add_generation_prompt", text)
    return continues
