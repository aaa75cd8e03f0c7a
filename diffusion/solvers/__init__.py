"""Solvers by the name of the diffusers scheduler that a pipeline's scheduler_config.json asks for."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hemiola.core.errors import UnsupportedModel

from .base import Schedule, Solver
from .flow_match_euler import FlowMatchEuler
from .unipc import UniPC

__all__ = ["SOLVERS", "Schedule", "Solver", "make_solver"]

SOLVERS: dict[str, Callable[[Mapping[str, Any], torch.device], Solver]] = {
    "FlowMatchEulerDiscreteScheduler": FlowMatchEuler,
    "UniPCMultistepScheduler": UniPC,
}


def make_solver(config: Mapping[str, Any], device: str | torch.device = "cpu") -> Solver:
    """The solver that a scheduler_config.json describes; its schedules lie and its steps run on the device, in float32.

    Raises:
        UnsupportedModel: an unknown scheduler, or an option that the solver does not do.
    """
    name = config.get("_class_name")
    if name not in SOLVERS:
        raise UnsupportedModel(f"No solver for the scheduler '{name}'. Supported: {', '.join(sorted(SOLVERS))}.")
    return SOLVERS[name](config, torch.device(device))
