"""`hemiola info`: devices, versions, which kernels would be chosen, and what the memory would be used for."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.table import Table

from hemiola.core.device import describe_device
from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Target

from .. import compose
from ..memory_plan import memory_lines
from .options import add_engine_options, engine_config

PACKAGES = ("hemiola", "torch", "transformers", "diffusers", "flashinfer-python", "xformers", "msgspec", "av", "pillow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_engine_options(parser, model_help="plan the memory for these models (default: the built-in ones)")


def run(options: argparse.Namespace) -> int:
    console = Console()
    loads = compose.plan(options.model or ["demo"], engine_config(options))
    console.print(_machine())
    console.print(_kernels(loads.config.device, getattr(torch, loads.config.dtype)))
    console.print(_memory(loads))
    return 0


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
