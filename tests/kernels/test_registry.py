"""Backends are found lazily, chosen by what they can do, and the choice is explained."""

import logging
from typing import Any

import pytest
import torch

from hemiola.kernels.linear import LINEAR
from hemiola.kernels.linear.torch_reference import TorchLinear
from hemiola.kernels.operations import OPERATIONS
from hemiola.kernels.registry import Operation, Target, UnknownBackend, UnusableBackend

CPU = Target("cpu", torch.float32)


class Picky:
    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return "it is never in the mood"


def picky_and_reference() -> Operation[Any]:
    return Operation(
        "demo", {"picky": f"{__name__}:Picky", "torch": "hemiola.kernels.linear.torch_reference:TorchLinear"}
    )


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownBackend, match=r"'magic'.*auto, fbgemm, onednn, torch"):
        LINEAR.resolve(CPU, "magic")


def test_auto_takes_the_first_that_can_run_and_says_why_not_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    operation = picky_and_reference()
    real_load = operation.load
    monkeypatch.setattr(operation, "load", lambda name: Picky if name == "picky" else real_load(name))
    with caplog.at_level(logging.INFO):
        resolved = operation.resolve(CPU)
    assert resolved.backend is TorchLinear
    assert caplog.messages == ["demo: auto -> torch (cpu, float32; not picky: it is never in the mood)"]
    with pytest.raises(UnusableBackend, match="'picky' cannot run on cpu, float32: it is never in the mood"):
        operation.resolve(CPU, "picky")


class Anything:
    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return "it has no attention sinks" if "sinks" in target.needs else None


def test_auto_takes_the_fastest_that_was_measured_on_the_architecture() -> None:
    names = {name: f"{__name__}:Anything" for name in ("first", "quick", "quicker")}
    operation: Operation[Any] = Operation("demo", names, tflops={(9, 0): {"quick": 500.0, "quicker": 600.4}})
    operation.load = lambda name: Anything  # type: ignore[method-assign]
    resolved = operation.resolve(Target("cuda", torch.bfloat16, (9, 0), head_dim=128))
    assert str(resolved) == "demo: auto -> quicker (cuda sm90, bfloat16, heads of 128; 600 TFLOP/s measured)"
    assert operation.usable(Target("cuda", torch.bfloat16, (9, 0))) == ("quicker", "quick", "first")
    for elsewhere in (CPU, Target("cuda", torch.bfloat16, (8, 0))):
        assert operation.resolve(elsewhere).name == "first"


def test_a_target_may_need_what_a_backend_lacks() -> None:
    operation: Operation[Any] = Operation("demo", {"any": f"{__name__}:Anything"})
    operation.load = lambda name: Anything  # type: ignore[method-assign]
    needy = Target.of("cpu", torch.float32, needs=("sinks",))
    with pytest.raises(UnusableBackend, match="'any' cannot run on cpu, float32, sinks: it has no attention sinks"):
        operation.resolve(needy, "any")


def test_a_backend_is_not_imported_before_it_is_asked_about() -> None:
    operation: Operation[Any] = Operation("demo", {"torch": "hemiola.no_such_module:Nothing"})
    assert operation.names == ("torch",)
    with pytest.raises(ModuleNotFoundError):
        operation.load("torch")


def test_onednn_says_that_it_is_for_cpus() -> None:
    assert LINEAR.why_not("onednn", Target("cuda", torch.bfloat16, (9, 0))) == "it is for CPUs"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_has_a_torch_reference_that_runs_anywhere(operation: Operation[Any]) -> None:
    for target in (CPU, Target("cuda", torch.bfloat16, (9, 0))):
        assert operation.why_not("torch", target) is None
