"""Checks a conversation as the OpenAI API has it, and puts it as chat templates want it. Knows no template by name.

What a template would pass over in silence is either rewritten so that it is not, or refused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hemiola.core.errors import InvalidRequest

from .terms import check_text, missing, wrong_type

MAX_MESSAGES = 4096
ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_NOT_TEXT = ("image_url", "input_audio", "file", "video_url", "audio_url")


def read_messages(
    messages: str | Sequence[Mapping[str, Any]], *, has_developer: bool, arguments_as_text: bool
) -> list[dict[str, Any]]:
    """The messages with strings for content; a string alone is one user message.

    Args:
        has_developer: the template knows the role `developer`; else such messages become the system's.
        arguments_as_text: the template writes tool calls' arguments as they are; else it gets them as objects.

    Raises:
        InvalidRequest: names the message, the field and what is allowed.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence):
        raise wrong_type("messages", "an array", messages)
    if not messages:
        raise InvalidRequest("messages", "Invalid 'messages': empty array. At least one is needed.", "empty_array")
    if len(messages) > MAX_MESSAGES:
        text = f"Invalid 'messages': array too long. At most {MAX_MESSAGES} are allowed, but got {len(messages)}."
        raise InvalidRequest("messages", text, "array_above_max_length")
    read = []
    for i, message in enumerate(messages):
        at = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise wrong_type(at, "an object", message)
        role = message.get("role")
        if role is None:
            raise missing(f"{at}.role")
        if role not in ROLES:
            raise InvalidRequest(f"{at}.role", f"Invalid '{at}.role'. Allowed: {', '.join(ROLES)}.")
        if role == "developer" and not has_developer:
            role = "system"
        read.append(_message(at, "tool" if role == "function" else role, message, arguments_as_text))
    return read


def split_begun(messages: str | Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], str]:
    """The messages before the last, and what the last has begun to say: it follows the prompt for an answer as it is.

    Raises:
        InvalidRequest: the last is not the assistant's, says nothing, or is the only one.
    """
    last = messages[-1] if isinstance(messages, Sequence) and len(messages) > 1 else None
    content = last.get("content") if isinstance(last, Mapping) and last.get("role") == "assistant" else None
    if isinstance(messages, str) or not isinstance(content, str) or set(last or ()) - {"role", "content"}:
        text = "Invalid 'continue_final_message': needs messages that end with one of the assistant's, a text alone."
        raise InvalidRequest("continue_final_message", text)
    return messages[:-1], content


def _message(at: str, role: str, message: Mapping[str, Any], arguments_as_text: bool) -> dict[str, Any]:
    read: dict[str, Any] = {"role": role}
    content = message.get("content")
    if content is None and role == "assistant":
        content = message.get("refusal") or ""
    if content is None:
        raise missing(f"{at}.content")
    read["content"] = _content(f"{at}.content", content)
    if message.get("name") is not None:
        read["name"] = check_text(f"{at}.name", message["name"])
    if role == "tool" and message.get("role") == "tool":
        if message.get("tool_call_id") is None:
            raise missing(f"{at}.tool_call_id")
        read["tool_call_id"] = check_text(f"{at}.tool_call_id", message["tool_call_id"])
    if role == "assistant":
        read.update(_assistant(at, message, arguments_as_text))
    return read


def _assistant(at: str, message: Mapping[str, Any], arguments_as_text: bool) -> dict[str, Any]:
    """Reasoning and tool calls of an answer that is sent back."""
    if message.get("audio") is not None:
        raise InvalidRequest(
            f"{at}.audio", f"'{at}.audio' is not supported: models here read text.", "unsupported_parameter"
        )
    read: dict[str, Any] = {}
    for name in ("reasoning_content", "reasoning"):
        if message.get(name) is not None:
            read.setdefault("reasoning_content", check_text(f"{at}.{name}", message[name]))
    calls = message.get("tool_calls")
    if calls is None and message.get("function_call") is not None:  # as it was before there were tools
        calls = [{"type": "function", "function": message["function_call"]}]
    if calls is not None and not isinstance(calls, Sequence):
        raise wrong_type(f"{at}.tool_calls", "an array", calls)
    if calls:
        read["tool_calls"] = [_call(f"{at}.tool_calls[{i}]", call, arguments_as_text) for i, call in enumerate(calls)]
    return read


def _call(at: str, call: Any, arguments_as_text: bool) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise wrong_type(at, "an object", call)
    if call.get("type", "function") != "function":
        raise InvalidRequest(f"{at}.type", f"Invalid '{at}.type'. Allowed: function.", "unsupported_value")
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise wrong_type(f"{at}.function", "an object", function)
    read: dict[str, Any] = {}
    for name in ("name", "arguments"):
        if function.get(name) is None:
            raise missing(f"{at}.function.{name}")
        read[name] = check_text(f"{at}.function.{name}", function[name])
    if not arguments_as_text:
        read["arguments"] = _parsed(read["arguments"])
    return {"id": call.get("id"), "type": "function", "function": read}


def _parsed(arguments: str) -> Any:
    """Models do not always write valid JSON: what is none stays as it was written."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _content(at: str, content: Any) -> str:
    """Parts of text become one text, a line each."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise wrong_type(at, "a string or an array of parts", content)
    return "\n".join(_part(f"{at}[{i}]", part) for i, part in enumerate(content))


def _part(at: str, part: Any) -> str:
    if not isinstance(part, Mapping):
        raise wrong_type(at, "an object", part)
    kind = part.get("type")
    if kind in _NOT_TEXT:
        text = f"'{at}.type': '{kind}' is not supported: the model reads text only. Allowed: text."
        raise InvalidRequest(f"{at}.type", text, "unsupported_value")
    if kind not in ("text", "refusal"):
        raise InvalidRequest(f"{at}.type", f"Invalid '{at}.type'. Allowed: text.")
    if part.get(kind) is None:
        raise missing(f"{at}.{kind}")
    return check_text(f"{at}.{kind}", part[kind])
