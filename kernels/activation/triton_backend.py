"""Gated activations in one Triton kernel, computed in float32."""

import torch
from torch import Tensor

from .. import triton_target
from ..registry import Target
from .torch_reference import check_kind

_MAX_BLOCK = 2048


class TritonGatedActivation:
    """See `GatedActivation`."""

    def __init__(self, kind: str) -> None:
        check_kind(kind)
        self._kind = kind
        self._kernel = triton_target.kernels_of(__package__).gated

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    def __call__(self, gate_up: Tensor) -> Tensor:
        num_tokens, half = gate_up.shape[0], gate_up.shape[1] // 2
        assert gate_up.stride(1) == 1, "rows must be contiguous"
        out = torch.empty((num_tokens, half), dtype=gate_up.dtype, device=gate_up.device)
        self._run(gate_up, gate_up[:, half:], out, (gate_up.stride(0), gate_up.stride(0), half))
        return out

    def apart(self, gate: Tensor, up: Tensor) -> Tensor:
        assert gate.is_contiguous() and up.is_contiguous() and gate.shape == up.shape, "see the interface"
        size = gate.shape[-1]
        self._run(gate, up, gate, (size, size, size))
        return gate

    def _run(self, gate: Tensor, up: Tensor, out: Tensor, strides: tuple[int, int, int]) -> None:
        if out.numel() == 0:
            return
        size = out.shape[-1]
        block = min(_MAX_BLOCK, triton_target.power_of_two(size))
        self._kernel[(out.numel() // size, -(-size // block))](
            gate, up, out, size, *strides, KIND=self._kind, BLOCK=block, num_warps=triton_target.num_warps(block)
        )
