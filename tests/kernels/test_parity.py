"""Every backend of every operation that can run here gives what the formula says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Target

TARGET = Target("cpu", torch.float32)


def _load_cases() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hemiola_kernel_cases", Path(__file__).with_name("cases.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = _load_cases().CASES


@pytest.mark.parametrize(
    ("operation", "name"),
    [(operation, name) for operation in OPERATIONS for name in operation.usable(TARGET)],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_backend_agrees_with_the_formula(operation, name) -> None:
    torch.manual_seed(0)
    with torch.inference_mode():
        CASES[operation.name](operation.load(name))


def test_every_operation_has_a_case() -> None:
    assert {operation.name for operation in OPERATIONS} == set(CASES)


def test_a_backend_that_ignored_its_options_would_be_caught() -> None:
    attention = next(operation for operation in OPERATIONS if operation.name == "paged_attention").load("torch")

    class Deaf(attention):
        def run(self, layer, q_THD, plan, options, sinks_H=None):
            return super().run(layer, q_THD, plan, type(options)(options.scale), sinks_H)

    torch.manual_seed(0)
    with torch.inference_mode(), pytest.raises(AssertionError):
        CASES["paged_attention"](Deaf)
