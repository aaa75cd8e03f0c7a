"""Solvers against diffusers' schedulers, bit for bit, alone and in batches of rows at different steps."""

from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from torch import Tensor

from hemiola.core.errors import UnsupportedModel
from hemiola.diffusion.solvers import Schedule, Solver, make_solver

SHAPE = (4, 3, 5)
UNIPC: dict[str, Any] = {"prediction_type": "flow_prediction", "use_flow_sigmas": True}


def outputs(num_steps: int, seed: int = 0) -> Tensor:
    return torch.randn(num_steps, *SHAPE, generator=torch.Generator().manual_seed(seed))


def reference(scheduler: Any, predictions: Tensor, start: Tensor) -> list[Tensor]:
    scheduler.set_begin_index(0)
    sample, samples = start[None], []
    for prediction, timestep in zip(predictions, scheduler.timesteps, strict=True):
        sample = scheduler.step(prediction[None], timestep, sample, return_dict=False)[0]
        samples.append(sample[0])
    return samples


class Walk:
    """One request's way through a solver."""

    def __init__(self, solver: Solver, schedule: Schedule, seed: int) -> None:
        self.schedule, self.step = schedule, 0
        self.predictions = outputs(schedule.num_steps, seed)
        self.sample = outputs(1, seed + 100)[0]
        self.history = tuple(torch.zeros(SHAPE) for _ in range(solver.num_history))
        self.start = self.sample
        self.samples: list[Tensor] = []


def advance(solver: Solver, walks: list[Walk]) -> None:
    coefficients = torch.stack([w.schedule.coefficients[w.step] for w in walks])
    prediction = torch.stack([w.predictions[w.step] for w in walks])
    history = [torch.stack(tensors) for tensors in zip(*(w.history for w in walks), strict=True)]
    sample, history_after = solver.step(coefficients, prediction, torch.stack([w.sample for w in walks]), history)
    for row, walk in enumerate(walks):
        walk.sample = sample[row]
        walk.history = tuple(tensor[row] for tensor in history_after)
        walk.samples.append(sample[row])
        walk.step += 1


def assert_equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert torch.equal(a, b), f"step {step} differs by {(a - b).abs().max()}"


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 9, 30])
@pytest.mark.parametrize("options", [{}, {"flow_shift": 3.0}, {"flow_shift": 5.0, "disable_corrector": [0, 2]},
                                     {"solver_order": 1}])  # fmt: skip
def test_unipc_equals_diffusers_bit_for_bit(num_steps: int, options: dict[str, Any]) -> None:
    scheduler = UniPCMultistepScheduler(**UNIPC, **options)
    scheduler.set_timesteps(num_steps)
    solver = make_solver({"_class_name": "UniPCMultistepScheduler", **scheduler.config})
    walk = Walk(solver, solver.schedule(num_steps), seed=1)
    assert torch.equal(walk.schedule.timesteps, scheduler.timesteps)
    for _ in range(num_steps):
        advance(solver, [walk])
    assert_equal(walk.samples, reference(scheduler, walk.predictions, walk.start))


@pytest.mark.parametrize("num_steps", [1, 2, 8, 50])
@pytest.mark.parametrize("options", [{}, {"shift": 3.0}, {"use_dynamic_shifting": True},
                                     {"use_dynamic_shifting": True, "time_shift_type": "linear"}])  # fmt: skip
@pytest.mark.parametrize("with_sigmas", [True, False])
def test_flow_match_euler_equals_diffusers_bit_for_bit(
    num_steps: int, options: dict[str, Any], with_sigmas: bool
) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(**options)
    sigmas = torch.linspace(1.0, 1 / num_steps, num_steps).tolist() if with_sigmas else None
    mu = 64 * (1.15 - 0.5) / (4096 - 256) + (0.5 - (1.15 - 0.5) / (4096 - 256) * 256)
    scheduler.set_timesteps(num_steps, sigmas=sigmas, mu=mu)
    solver = make_solver({"_class_name": "FlowMatchEulerDiscreteScheduler", **scheduler.config})
    walk = Walk(solver, solver.schedule(num_steps, sigmas, num_tokens=64), seed=2)
    assert torch.equal(walk.schedule.timesteps, scheduler.timesteps)
    for _ in range(num_steps):
        advance(solver, [walk])
    assert_equal(walk.samples, reference(scheduler, walk.predictions, walk.start))


@pytest.mark.parametrize(
    ("name", "options"),
    [("UniPCMultistepScheduler", {**UNIPC, "flow_shift": 3.0}), ("FlowMatchEulerDiscreteScheduler", {"shift": 2.0})],
)
def test_rows_at_different_steps_of_different_schedules_equal_solo_walks(name: str, options: dict[str, Any]) -> None:
    solver = make_solver({"_class_name": name, **options})
    lengths = [2, 7, 4]
    alone = [Walk(solver, solver.schedule(n), seed=n) for n in lengths]
    for walk in alone:
        for _ in range(walk.schedule.num_steps):
            advance(solver, [walk])
    together = [Walk(solver, solver.schedule(n), seed=n) for n in lengths]
    for _ in range(3):
        advance(solver, [together[1]])
    while running := [w for w in together if w.step < w.schedule.num_steps]:
        advance(solver, running)
    for a, b in zip(together, alone, strict=True):
        assert_equal(a.samples, b.samples)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"_class_name": "UniPCMultistepScheduler"}, "prediction_type"),
        ({"_class_name": "UniPCMultistepScheduler", **UNIPC, "solver_order": 3}, "solver_order"),
        ({"_class_name": "UniPCMultistepScheduler", **UNIPC, "solver_type": "bh1"}, "solver_type"),
        ({"_class_name": "UniPCMultistepScheduler", **UNIPC, "use_karras_sigmas": True}, "use_karras_sigmas"),
        ({"_class_name": "FlowMatchEulerDiscreteScheduler", "stochastic_sampling": True}, "stochastic_sampling"),
        ({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift_terminal": 0.1}, "shift_terminal"),
        ({"_class_name": "FlowMatchEulerDiscreteScheduler", "time_shift_type": "cubic"}, "time_shift_type"),
        ({"_class_name": "DDIMScheduler"}, "UniPCMultistepScheduler"),
    ],
)
def test_unsupported_options_are_refused_by_name(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        make_solver(config)
