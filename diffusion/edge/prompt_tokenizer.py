"""Prompts to token ids, by a folder's tokenizer.json (CLIP's: or vocab.json and merges.txt) and chat template alone.
No torch, no transformers.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from hemiola.core.errors import CorruptWeights, ModelNotFound
from hemiola.core.hub.source import read_json

from .clip_tokenizer import clip_tokenizer, is_clip


class PromptTokenizer:
    """The tokenizer of one text encoder. Any thread may use it."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._tokenizer = _read(self._folder)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._cutting = threading.Lock()  # truncation is a setting of the shared object, and it may not change in use

    def encode(self, text: str, max_len: int) -> tuple[int, ...]:
        """Ids of the text with the special tokens of the tokenizer, at most `max_len`: the text is cut, never they."""
        with self._cutting:
            ids = self._tokenizer.encode(text).ids
            if len(ids) > max_len:
                self._tokenizer.enable_truncation(max_len)
                ids = self._tokenizer.encode(text).ids
                self._tokenizer.no_truncation()
        return tuple(ids)

    def render_chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
        """The prompt that the chat template makes of the messages, up to where an answer would start."""
        return self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens, **options)

    @cached_property
    def _special_tokens(self) -> dict[str, str]:
        tokens = {}
        for name, value in self._config.items():
            if name.endswith("_token"):
                text = value.get("content") if isinstance(value, dict) else value
                if isinstance(text, str):
                    tokens[name] = text
        return tokens

    @cached_property
    def _config(self) -> dict[str, Any]:
        path = self._folder / "tokenizer_config.json"
        return read_json(path) if path.is_file() else {}

    @cached_property
    def _template(self) -> jinja2.Template:
        path = self._folder / "chat_template.jinja"
        source = path.read_text(encoding="utf-8") if path.is_file() else self._config.get("chat_template")
        if isinstance(source, list):
            source = next((entry["template"] for entry in source if entry["name"] == "default"), None)
        if not isinstance(source, str):
            raise ModelNotFound(f"No chat template in {self._folder}: looked for {path} and in tokenizer_config.json.")
        return _environment().from_string(source)


def _read(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    is_old = is_clip(folder)
    if not is_old and not path.is_file():
        raise ModelNotFound(f"No tokenizer in {folder}: looked for {path}.")
    try:
        return clip_tokenizer(folder) if is_old else Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CorruptWeights(f"{folder if is_old else path} is no tokenizer: {error}") from error


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as chat templates expect it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _raise
    return environment


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
