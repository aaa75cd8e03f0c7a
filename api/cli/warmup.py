"""`hemiola warmup MODEL ...`: builds all that serving these models would build at start, so that the start is short."""

import argparse
import time

from rich.console import Console

from .options import add_engine_settings, engine_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="as for `hemiola serve` (default: the built-in models)"
    )
    add_engine_settings(parser)


def run(options: argparse.Namespace) -> int:
    from ..engine import Engine  # imports torch

    console = Console(highlight=False)
    began_s = time.monotonic()

    def tell(line: str) -> None:
        console.print(f"{time.monotonic() - began_s:7.1f} s  {line} ...", style="dim", soft_wrap=True)

    tell("Loading the models")
    with Engine(*options.models, config=engine_config(options), on_line=tell) as engine:
        device, num_built = engine.loads.config.device, engine.num_built
    if num_built == 0:
        console.print(f"There is nothing to build for these models on {device}.")
    else:
        console.print(f"Built {num_built} kernels and graphs in {time.monotonic() - began_s:.1f} s on {device}.")
    return 0
