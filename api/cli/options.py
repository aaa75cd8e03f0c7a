"""Options that several commands share, and what they make of them: an engine here, or a client of a server."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hemiola.core.config import DTYPES, LOAD_FORMATS, EngineConfig
from hemiola.core.errors import InvalidRequest

if TYPE_CHECKING:
    from ..client import Client
    from ..engine import Engine

# What sets up an engine: option -> as if it had not been given.
_ENGINE_OPTIONS = {
    "device": "auto",
    "dtype": "auto",
    "memory_mib": None,
    "threads": None,
    "policy": "deadline",
    "load_format": "auto",
}


def add_engine_options(parser: argparse.ArgumentParser, *, model_help: str) -> None:
    """--model and everything that sets up an engine."""
    parser.add_argument("--model", "-m", action="append", metavar="MODEL", help=model_help)
    add_engine_settings(parser)


def add_engine_settings(parser: argparse.ArgumentParser) -> None:
    """Everything that sets up an engine but its models."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", choices=("auto", *DTYPES))
    parser.add_argument("--memory-mib", type=int, metavar="N", help="size of the arena (default: 512 on a CPU)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores but one)")
    parser.add_argument("--policy", default="deadline", help="order of steps: deadline or fcfs")
    parser.add_argument("--load-format", default="auto", choices=LOAD_FORMATS)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """--url and --api-key: a server instead of an engine here."""
    parser.add_argument("--url", help="ask the server at this address; without it, an engine is started here")
    parser.add_argument("--api-key", metavar="KEY", help="with --url: if the server wants one")


def engine_config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        device=options.device,
        dtype=options.dtype,
        memory_bytes=None if options.memory_mib is None else options.memory_mib << 20,
        threads=options.threads,
        policy=options.policy,
        load_format=options.load_format,
    )


def open_engine(options: argparse.Namespace, default_model: str) -> "Engine":
    """The engine that the options describe."""
    from ..engine import Engine  # imports torch: only once a command really needs it

    return Engine(*(options.model or [default_model]), config=engine_config(options))


def open_calls(options: argparse.Namespace, default_model: str) -> "Engine | Client":
    """The engine or the server that the options name.

    Raises:
        InvalidRequest: they name both.
    """
    if options.url is None:
        if options.api_key is not None:
            raise InvalidRequest("--api-key", "Invalid '--api-key': only allowed with '--url'.")
        return open_engine(options, default_model)
    for name, default in _ENGINE_OPTIONS.items():
        if getattr(options, name) != default:
            option = f"--{name.replace('_', '-')}"
            raise InvalidRequest(option, f"Invalid '{option}': with '--url', that is up to the server.")
    if options.model and len(options.model) > 1:
        raise InvalidRequest("--model", "Invalid '--model': with '--url', name one at most.")
    from ..client import Client

    return Client(options.url, options.api_key)


def model_asked(options: argparse.Namespace) -> dict[str, Any]:
    """Which of a server's models is meant, if that was said; an engine here has only one."""
    return {"model": options.model[0]} if options.url is not None and options.model else {}


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the named options that were set."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def check_output(path: Path, endings: Iterable[str]) -> None:
    """Looks at where a result shall go before any work is done.

    Raises:
        InvalidRequest: the folder does not exist, or the file's ending is none of these.
    """
    allowed = sorted(endings)
    if path.suffix.lower() not in allowed:
        raise InvalidRequest("output", f"Cannot write '{path}'. Allowed endings: {', '.join(allowed)}.")
    if not path.parent.is_dir():
        raise InvalidRequest("output", f"Cannot write '{path}': there is no folder '{path.parent}'.")
