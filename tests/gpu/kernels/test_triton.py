"""Triton backends on a GPU: the formulas, real shapes in each precision, CUDA graphs, and no waiting for the device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Operation, Target
from hemiola.tests.gpu.kernels.triton_tasks import TASKS, rounded
from hemiola.tests.kernels.cases import CASES

if not torch.cuda.is_available():
    pytest.skip("There is no CUDA device", allow_module_level=True)
triton = pytest.importorskip("triton")

CUDA = torch.device("cuda")
BY_NAME: dict[str, Operation[Any]] = {operation.name: operation for operation in OPERATIONS}
WITH_TRITON = [BY_NAME[name] for name in dict.fromkeys(task.operation for task in TASKS.values())]
# Float32 is summed in another order. Half precision: two units in the last place, since a result is rounded once, and
# the residual that a norm goes on with once more.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
MAY_BE_EMPTY = ("rms_norm", "rope", "gated_activation", "kv_store")

every_task = pytest.mark.parametrize("task", TASKS)
every_operation = pytest.mark.parametrize("operation", WITH_TRITON, ids=lambda operation: operation.name)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


@every_operation
def test_compiled_kernels_agree_with_the_formula(operation: Operation[Any]) -> None:
    with CUDA:
        CASES[operation.name](operation.load("triton"))


@every_operation
def test_auto_takes_triton_for_half_precision(operation: Operation[Any]) -> None:
    assert operation.resolve(Target.of(CUDA, torch.bfloat16)).name == "triton"


@every_task
@pytest.mark.parametrize("num_tokens", [0, 1, 64, 4609])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_real_shapes_agree_with_the_reference(task: str, num_tokens: int, dtype: torch.dtype) -> None:
    """The reference computes in float32 from what the dtype can hold."""
    chosen = TASKS[task]
    operation = BY_NAME[chosen.operation]
    if num_tokens == 0 and chosen.operation not in MAY_BE_EMPTY:
        pytest.skip("a denoiser always has tokens")
    inputs = rounded(chosen.inputs(num_tokens), dtype)
    expected = chosen.run(operation.load("torch"), inputs, torch.float32)
    got = chosen.run(operation.load("triton"), inputs, dtype)
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@every_task
def test_a_captured_launch_replays_and_needs_no_compilation_for_another_length(task: str) -> None:
    chosen = TASKS[task]
    backend = BY_NAME[chosen.operation].load("triton")
    chosen.run(backend, half(task, 64), torch.bfloat16)  # compiles
    inputs, others = half(task, 33), half(task, 33)
    with no_compilation():
        expected = chosen.run(backend, others, torch.bfloat16)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = chosen.run(backend, inputs, torch.bfloat16)
    graph.replay()
    assert torch.equal(captured, chosen.run(backend, inputs, torch.bfloat16))
    for given, other in zip(inputs, others, strict=True):
        given.copy_(other)
    graph.replay()
    assert torch.equal(captured, expected)


@every_task
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_nothing_waits_for_the_device(task: str, backend: str) -> None:
    chosen, inputs = TASKS[task], half(task, 64)
    made = BY_NAME[chosen.operation].load(backend)
    chosen.run(made, inputs, torch.bfloat16)
    with no_waiting():
        chosen.run(made, inputs, torch.bfloat16)


def test_solver_steps_do_not_wait_for_the_device() -> None:
    flow, sample, last, clean_1, clean_2 = torch.randn(5, 3, 16, 1, 64, 64, device=CUDA)
    coefficients = torch.rand(3, 12, device=CUDA) + 0.2
    backend = BY_NAME["solver_step"].load("torch")
    with no_waiting():
        backend.flow_euler(sample, flow, coefficients[:, 0])
        backend.unipc(flow, sample, last, clean_1, clean_2, coefficients)


def test_waiting_would_be_noticed() -> None:
    x = torch.ones(1, device=CUDA)
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        x.item()


def test_compiling_would_be_noticed() -> None:
    chosen = TASKS["gated activation"]
    backend = BY_NAME[chosen.operation].load("triton")
    with pytest.raises(AssertionError, match="gated"), no_compilation():
        backend("silu")(torch.randn(3, 2 * 37, device=CUDA, dtype=torch.float16))


def half(task: str, num_tokens: int) -> tuple[torch.Tensor, ...]:
    inputs = TASKS[task].inputs(num_tokens)
    return tuple(x.bfloat16() if x.is_floating_point() else x for x in inputs)


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextmanager
def no_compilation() -> Iterator[None]:
    """Fails if Triton compiles a kernel here, or loads one that was compiled in another process."""
    compiled: list[str] = []
    before = triton.knobs.runtime.jit_post_compile_hook
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: compiled.append(str(facts["repr"]))
    try:
        yield
    finally:
        triton.knobs.runtime.jit_post_compile_hook = before
    assert not compiled, f"compiled {compiled}"
