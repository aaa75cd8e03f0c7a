"""What an engine is made of, as users say it in Python: models, a config and its fields by name. No torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hemiola.core.bounds import shown
from hemiola.core.config import EngineConfig
from hemiola.core.errors import InvalidRequest

from .front.terms import check_options


def configured(config: EngineConfig | None, options: Mapping[str, Any], taker: Callable[..., object]) -> EngineConfig:
    """The config with these fields replaced.

    Args:
        taker: what was called: its own options are named among those that are allowed.

    Raises:
        InvalidRequest: it is no config, there is no such field, or its value cannot be.
    """
    if config is not None and not isinstance(config, EngineConfig):
        raise InvalidRequest("config", f"Invalid 'config': {shown(config)}. Allowed: an EngineConfig or None.")
    check_options(options, EngineConfig, taker)
    return replace(config or EngineConfig(), **options)


def models_named(models: Sequence[object]) -> tuple[str | Path, ...]:
    """The models that were named, or the built-in ones where none was.

    Raises:
        InvalidRequest: one of them is no name and no path.
    """
    named = tuple(model for model in models if isinstance(model, str | Path))
    if len(named) != len(models):
        wrong = next(model for model in models if not isinstance(model, str | Path))
        hint = " Several models are several arguments: Engine('a', 'b')." if isinstance(wrong, list | tuple) else ""
        text = f"Invalid 'models': {shown(wrong)}. Allowed: names as strings, and folders as strings or paths.{hint}"
        raise InvalidRequest("models", text)
    return named or ("demo",)
