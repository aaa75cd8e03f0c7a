"""Checks the tools that a model is offered, as the OpenAI API has them, and which of them it may call."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hemiola.core.errors import InvalidRequest

from .terms import check_text, missing, wrong_type

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHOICES = "none, auto, an object {type: allowed_tools}"

Tool = Mapping[str, Any]


def offered_tools(tools: Any, choice: Any = None) -> list[Tool]:
    """The tools to tell the model of; none where it may call none. An empty list is as good as none.

    Raises:
        InvalidRequest: names the field; also for choices that would have to force the model, which nothing here does.
    """
    if tools is not None and (isinstance(tools, str) or not isinstance(tools, Sequence)):
        raise wrong_type("tools", "an array", tools)
    checked = [_tool(f"tools[{i}]", tool) for i, tool in enumerate(tools or ())]
    if len(checked) > MAX_TOOLS:
        text = f"Invalid 'tools': array too long. At most {MAX_TOOLS} are allowed, but got {len(checked)}."
        raise InvalidRequest("tools", text, "array_above_max_length")
    return _chosen(checked, choice)


def _tool(at: str, tool: Any) -> Tool:
    if not isinstance(tool, Mapping):
        raise wrong_type(at, "an object", tool)
    kind = tool.get("type")
    if kind is None:
        raise missing(f"{at}.type")
    if kind != "function":
        raise InvalidRequest(f"{at}.type", f"Invalid '{at}.type'. Allowed: function.", "unsupported_value")
    function = tool.get("function")
    if function is None:
        raise missing(f"{at}.function")
    if not isinstance(function, Mapping):
        raise wrong_type(f"{at}.function", "an object", function)
    if function.get("name") is None:
        raise missing(f"{at}.function.name")
    name = check_text(f"{at}.function.name", function["name"])
    if not _NAME.fullmatch(name):
        text = f"Invalid '{at}.function.name': letters, digits, '_' and '-' are allowed, 64 at most."
        raise InvalidRequest(f"{at}.function.name", text)
    if function.get("description") is not None:
        check_text(f"{at}.function.description", function["description"])
    if not isinstance(function.get("parameters"), Mapping | None):
        raise wrong_type(f"{at}.function.parameters", "an object", function["parameters"])
    if function.get("strict") not in (None, False):
        text = f"'{at}.function.strict' is not supported: arguments are not constrained to a schema. Allowed: false."
        raise InvalidRequest(f"{at}.function.strict", text, "unsupported_parameter")
    # As it was given, for models know tools by their very words; `strict` is not the model's business.
    return {"type": "function", "function": {key: value for key, value in function.items() if key != "strict"}}


def _chosen(tools: list[Tool], choice: Any) -> list[Tool]:
    if choice is None or choice == "auto":
        return tools
    if choice == "none":
        return []
    if not tools:
        raise InvalidRequest("tool_choice", "Invalid 'tool_choice': only allowed when 'tools' are specified.")
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return _allowed(tools, choice.get("allowed_tools"))
    is_known = choice == "required" or (isinstance(choice, Mapping) and choice.get("type") in ("function", "custom"))
    if is_known:
        text = "'tool_choice': a call cannot be forced. Allowed: " + _CHOICES + "."
        raise InvalidRequest("tool_choice", text, "unsupported_parameter")
    if not isinstance(choice, str | Mapping):
        raise wrong_type("tool_choice", "a string or an object", choice)
    raise InvalidRequest("tool_choice", f"Invalid 'tool_choice'. Allowed: {_CHOICES}.")


def _allowed(tools: list[Tool], allowed: Any) -> list[Tool]:
    """Those of the tools that `{mode, tools}` names."""
    at = "tool_choice.allowed_tools"
    if not isinstance(allowed, Mapping):
        raise wrong_type(at, "an object", allowed)
    if allowed.get("mode", "auto") != "auto":
        raise InvalidRequest(f"{at}.mode", f"'{at}.mode': a call cannot be forced. Allowed: auto.", "unsupported_value")
    named = allowed.get("tools")
    if not isinstance(named, Sequence) or isinstance(named, str):
        raise wrong_type(f"{at}.tools", "an array", named)
    names = set()
    for i, each in enumerate(named):
        function = each.get("function") if isinstance(each, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise missing(f"{at}.tools[{i}].function.name")
        names.add(function["name"])
    return [tool for tool in tools if tool["function"]["name"] in names]
