"""Options that several commands share, and what they make of them."""

import argparse
from typing import TYPE_CHECKING, Any

from hemiola.core.config import DTYPES, LOAD_FORMATS, EngineConfig

if TYPE_CHECKING:
    from ..engine import Engine


def add_engine_options(parser: argparse.ArgumentParser, *, model_help: str) -> None:
    """--model and everything that sets up an engine."""
    parser.add_argument("--model", "-m", action="append", metavar="MODEL", help=model_help)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", choices=("auto", *DTYPES))
    parser.add_argument("--memory-mib", type=int, metavar="N", help="size of the arena (default: 512 on a CPU)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores but one)")
    parser.add_argument("--policy", default="deadline", help="order of steps: deadline or fcfs")
    parser.add_argument("--load-format", default="auto", choices=LOAD_FORMATS)


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


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the named options that were set."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}
