"""Where streams cannot be restricted to some SMs, lanes go by priorities: drivers and packages of any age."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hemiola.core.sm_shares import SmShares

DEVICE = torch.device("cuda:0")


class Driver(ModuleType):
    """`cuda.bindings.driver`, beside a driver that lacks some functions: these raise, as in that package."""

    CUdevResourceType = int
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self, *lacking: str) -> None:
        super().__init__("cuda.bindings.driver")
        self._lacking = lacking

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            if name in self._lacking:
                raise RuntimeError(f'Function "{name}" not found')
            group = SimpleNamespace(sm=SimpleNamespace(smCount=80))
            return (0, [group], 1, group) if name == "cuDevSmResourceSplitByCount" else (0, 7)

        return call


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(torch.cuda, "Stream", lambda index, priority: "whole")
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda stream, device: "restricted")


def shares(monkeypatch: pytest.MonkeyPatch, *lacking: str) -> SmShares:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", Driver(*lacking))
    return SmShares(DEVICE)


def test_a_share_is_restricted_where_the_driver_can(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shares(monkeypatch)
    assert (found.stream(0.6, 0), found.stream(1.0, 0), found.why_not) == ("restricted", "whole", None)


@pytest.mark.parametrize("lacking", ["cuDeviceGetDevResource", "cuGreenCtxCreate", "cuGreenCtxStreamCreate"])
def test_a_driver_older_than_green_contexts_has_priorities_alone(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    """The package raises for what its driver lacks: that ended the engine's start."""
    found = shares(monkeypatch, lacking)
    assert found.stream(0.6, 0) == "whole"
    assert found.why_not is not None and lacking in found.why_not


def test_without_the_package_there_are_priorities_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    found = SmShares(DEVICE)
    assert found.stream(0.6, 0) == "whole" and found.why_not is not None
