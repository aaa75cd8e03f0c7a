"""Every backend of every operation that can run here gives what the formula says."""

from typing import Any

import pytest
import torch
from torch import Tensor

from hemiola.kernels.attention import ScoreOptions
from hemiola.kernels.attention.paged_fixed_torch import TorchFixedPlan
from hemiola.kernels.attention.paged_torch import TorchPagedAttention, TorchPagedPlan
from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Operation, Target
from hemiola.tests.kernels.cases import CASES

TARGET = Target("cpu", torch.float32)


@pytest.mark.parametrize(
    ("operation", "name"),
    [(operation, name) for operation in OPERATIONS for name in operation.usable(TARGET)],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_backend_agrees_with_the_formula(operation: Operation[Any], name: str) -> None:
    torch.manual_seed(0)
    with torch.inference_mode():
        CASES[operation.name](operation.load(name))


def test_every_operation_has_a_case() -> None:
    assert {operation.name for operation in OPERATIONS} == set(CASES)


def test_a_backend_that_ignored_its_options_would_be_caught() -> None:
    class Deaf(TorchPagedAttention):
        def run(
            self,
            layer: int,
            q_THD: Tensor,
            plan: TorchPagedPlan | TorchFixedPlan,
            options: ScoreOptions,
            sinks_H: Tensor | None = None,
        ) -> Tensor:
            return super().run(layer, q_THD, plan, ScoreOptions(options.scale), sinks_H)

    torch.manual_seed(0)
    with torch.inference_mode(), pytest.raises(AssertionError):
        CASES["paged_attention"](Deaf)
