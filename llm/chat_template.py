"""Conversations to prompts, by the template in a model's folder. No torch.

Templates are Jinja with a few additions that models' templates rely on, and run in a sandbox: a template is part of a
download, not of this program.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..core.errors import InvalidRequest
from ..core.hub.source import read_json


class ChatTemplate:
    """The chat template of one model.

    Args:
        folder: has `chat_template.jinja`, or a template in `tokenizer_config.json`. One without is no error until
            something is rendered.

    Raises:
        CorruptWeights: one of these files is there and cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        config = _read_json(folder / "tokenizer_config.json")
        self._sources = _sources(folder, config)
        self._tokens = {
            name: token.get("content") if isinstance(token, dict) else token
            for name, token in config.items()
            if name.endswith("_token") and isinstance(token, str | dict)
        }
        self._environment = _environment()
        self._compiled: dict[str, Template] = {}

    def mentions(self, text: str) -> bool:
        """Whether the template's source has that in it: a hint of what it knows, such as a role."""
        return any(text in source for source in self._sources.values())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """The prompt for the next answer of the assistant.

        Args:
            messages: {role, content, ...} as the OpenAI API has them.
            tools: {type: "function", function: {...}}; keys are rendered in the order given.
            options: what the model's template understands, such as `enable_thinking`.

        Raises:
            InvalidRequest: the model has no template, or the template refuses the conversation.
        """
        if not self._sources:
            raise InvalidRequest("messages", "Invalid 'messages': this model has no chat template; send a prompt.")
        source = self._sources.get("tool_use" if tools else "default") or next(iter(self._sources.values()))
        values = {**self._tokens, **options, "messages": messages, "tools": tools or None}
        try:
            text: str = self._template(source).render(**values, add_generation_prompt=add_generation_prompt)
        except Exception as error:  # whatever a downloaded program may raise
            raise InvalidRequest("messages", f"Invalid 'messages': the chat template says: {error}") from error
        return text

    def _template(self, source: str) -> Template:
        """Compiled when it is first needed: that takes as long as rendering a hundred conversations."""
        template = self._compiled.get(source)
        if template is None:
            template = self._compiled[source] = self._environment.from_string(source)
        return template


def _sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name; most models have `default` only."""
    if (folder / "chat_template.jinja").is_file():
        return {"default": (folder / "chat_template.jinja").read_text(encoding="utf-8")}
    found = config.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        return {entry["name"]: entry["template"] for entry in found}
    return {"default": found} if found else {}


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


class _GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}` marks what the assistant wrote, for training: here, text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller: Callable[[], str]) -> str:
        return caller()


def _to_json(value: Any, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """Unlike jinja2's own, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _read_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
