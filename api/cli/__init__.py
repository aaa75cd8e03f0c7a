"""The command line: `hemiola COMMAND`, or `python -m hemiola COMMAND`.

One module a command, each with `add_arguments` and `run`.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from hemiola.core.config import wait_passively
from hemiola.core.errors import HemiolaError, InvalidRequest

COMMANDS = {
    "chat": "talk with a language model",
    "image": "make pictures from a prompt",
    "video": "make a clip from a prompt",
    "demo": "text, pictures and a clip from one engine at once, with a drawing of their steps",
    "serve": "answer HTTP, as OpenAI's API does",
    "warmup": "build ahead what serving models builds at start: kernels, graphs, shares of the SMs",
    "models": "list the models that can be served without a download",
    "info": "show devices, versions, backends and the memory plan",
    "export-demo": "write the built-in models as folders that transformers and diffusers load",
    "bench": "measure against what you would use instead",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit status."""
    wait_passively()
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="hemiola", description="Text, images and video from one engine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers: dict[str, argparse.ArgumentParser] = {}
    for name, summary in COMMANDS.items():
        command = parsers[name] = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            allow_abbrev=False,  # '--n 3' was taken for '--negative 3'
        )
        command.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
        if name in arguments:  # others need not be imported: some bring torch
            _module(name).add_arguments(command)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    try:
        status: int = _module(options.command).run(options)
    except HemiolaError as error:
        print(f"hemiola {options.command}: {_as_typed(error, parsers[options.command])}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"hemiola {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _as_typed(error: HemiolaError, parser: argparse.ArgumentParser) -> str:
    """The message with fields called as they are on the command line: '--steps' for 'num_inference_steps'."""
    message = error.message
    param = error.param if isinstance(error, InvalidRequest) else None
    for action in parser._actions:
        for option in action.option_strings[-1:]:
            in_bytes = action.dest.replace("_mib", "_bytes")
            for name in {action.dest, in_bytes, option.lstrip("-").replace("-", "_")}:
                # What comes from the engine's process has its words alone. Other fields than the one at fault are
                # named as hints, but a plain word may as well be a value.
                if name == param or f"Invalid '{name}'" in message or "_" in name:
                    message = message.replace(f"'{name}'", f"'{option}'")
    return message


def _module(name: str) -> Any:
    return import_module(f"hemiola.api.cli.{name.replace('-', '_')}")
