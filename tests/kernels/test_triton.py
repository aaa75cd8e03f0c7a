"""Triton backends against the same formulas as every other, run by Triton's interpreter on the CPU.

Needs `TRITON_INTERPRET=1` and Triton: `TRITON_INTERPRET=1 pytest tests/kernels/test_triton.py`.
"""

from typing import Any

import pytest
import torch

from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Operation, Target
from hemiola.tests.kernels.cases import CASES

triton = pytest.importorskip("triton")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton's interpreter is off", allow_module_level=True)

WITH_TRITON = [operation for operation in OPERATIONS if "triton" in operation.names]


@pytest.mark.parametrize("operation", WITH_TRITON, ids=lambda operation: operation.name)
def test_interpreted_kernels_agree_with_the_formula(operation: Operation[Any]) -> None:
    torch.manual_seed(0)
    with torch.inference_mode():
        CASES[operation.name](operation.load("triton"))


def test_only_cuda_devices_are_offered_triton() -> None:
    for operation in WITH_TRITON:
        assert operation.why_not("triton", Target("cpu", torch.float32)) == "it is for CUDA devices"
        assert operation.why_not("triton", Target("cuda", torch.bfloat16, (9, 0))) is None
        assert operation.why_not("triton", Target("cuda", torch.float16, (7, 5))) == "it needs compute capability 8.0"
