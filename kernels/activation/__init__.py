"""Gated activations: act(gate) * up of a joint projection."""

from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target

KINDS = ("silu", "gelu", "gelu_pytorch_tanh")


class GatedActivation(Protocol):
    """One of `KINDS`."""

    def __init__(self, kind: str) -> None: ...

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    def __call__(self, gate_up: Tensor) -> Tensor:
        """[T, 2 I], gates first -> [T, I]. May overwrite its input."""
        ...

    def apart(self, gate: Tensor, up: Tensor) -> Tensor:
        """Of two contiguous tensors of one shape, for projections that are not joint. May overwrite the gates."""
        ...


GATED_ACTIVATION: Operation[GatedActivation] = Operation(
    "gated_activation",
    {
        "triton": "hemiola.kernels.activation.triton_backend:TritonGatedActivation",
        "torch": "hemiola.kernels.activation.torch_reference:TorchGatedActivation",
    },
)
