"""`hemiola info`: devices, versions, which kernels would be chosen, and what the memory would be used for."""

import argparse
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.table import Table

from hemiola.core.config import DTYPES, EngineConfig
from hemiola.core.device import describe_device
from hemiola.core.errors import CannotFit
from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Target

from .. import compose
from ..memory_plan import memory_lines
from .options import add_engine_options, engine_config

PACKAGES = ("hemiola", "torch", "transformers", "diffusers", "flashinfer-python", "xformers", "msgspec", "av", "pillow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help="plan the memory for these (default: the built-in)")
    add_engine_options(parser, model_help="the same as MODEL")


def run(options: argparse.Namespace) -> int:
    console = Console()
    models, config = [*options.models, *(options.model or ())] or ["demo"], engine_config(options)
    console.print(_machine())
    try:
        loads = compose.plan(models, config)
    except CannotFit:
        console.print(_weights(models, config))
        raise
    console.print(_kernels(loads.config.device, getattr(torch, loads.config.dtype)))
    console.print(_memory(loads))
    return 0


def _weights(models: Sequence[str], config: EngineConfig) -> Table:
    """Of models that do not fit together here: how large each is."""
    served, encoders, _ = compose.find_models(models, config)
    table = Table("model", "parameters", *(f"GiB in {dtype}" for dtype in DTYPES), title="weights")
    for name, summary in compose.weights_of((*served, *encoders)).items():
        sizes = (f"{summary.bytes_as(dtype) / 2**30:,.2f}" for dtype in DTYPES)
        table.add_row(name, f"{summary.num_params / 1e6:,.1f} M", *sizes)
    return table


def _machine() -> Table:
    table = Table("what", "which", title="machine")
    table.add_row("Python", platform.python_version())
    for name in PACKAGES:
        table.add_row(name, _version(name))
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    for device in devices:
        found = describe_device(device)
        units = "cores" if found.kind == "cpu" else "SMs"
        table.add_row(device, f"{found.name}, {found.total_bytes / 2**30:.1f} GiB, {found.num_units} {units}")
    return table


def _kernels(device: str, dtype: torch.dtype) -> Table:
    table = Table(
        "operation", "backend", "all, best first", title=f"kernels on {device} in {str(dtype).removeprefix('torch.')}"
    )
    target = Target.of(device, dtype)
    for operation in OPERATIONS:
        usable = operation.usable(target)
        others = [f"{name}: {operation.why_not(name, target) or 'usable'}" for name in operation.names]
        table.add_row(operation.name, usable[0] if usable else "none", "; ".join(others))
    return table


def _memory(loads: compose.LoadPlan) -> Table:
    table = Table("what", "size", "why", title="memory plan")
    for line in memory_lines(loads):
        table.add_row(line.what, line.mib, line.why)
    return table


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
