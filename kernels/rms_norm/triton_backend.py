"""RMS norm in one Triton kernel, computed in float32."""

from typing import NamedTuple

import torch
from torch import Tensor

from .. import triton_target
from ..registry import Target

_TILE = 2048  # elements of the rows that one program takes together


class _Rows(NamedTuple):
    """Of a tensor [tokens, size] or [tokens, group, size]."""

    num_rows: int
    group: int
    stride: int
    group_stride: int


class TritonRmsNorm:
    """See `RmsNorm`. Inputs of more than three dimensions must be contiguous."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight.detach().contiguous()
        self._eps = eps
        self._size = weight.shape[-1]
        self._group = weight.numel() // self._size
        self._block = triton_target.power_of_two(self._size)
        self._rows = max(1, _TILE // self._block)
        self._num_warps = triton_target.num_warps(self._rows * self._block)
        self._kernel = triton_target.kernels_of(__package__).rms_norm

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return triton_target.why_not(target)

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return self._run(x, None, out)

    def in_place(self, x: Tensor) -> Tensor:
        return self._run(x, None, x)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        out = torch.empty(x.shape, dtype=residual.dtype, device=x.device)
        return self._run(x, residual, out)

    def _run(self, x: Tensor, residual: Tensor | None, out: Tensor) -> Tensor:
        read, written = self._layout(x), self._layout(out)
        if read.num_rows == 0:
            return out
        grid = (-(-read.num_rows // self._rows),)
        self._kernel[grid](
            x,
            residual,
            out,
            self._weight,
            read.num_rows,
            read.group,
            self._size,
            read.stride,
            read.group_stride,
            0 if residual is None else self._residual_stride(residual),
            written.stride,
            written.group_stride,
            0 if self._group == 1 else self._size,
            self._eps,
            ROWS=self._rows,
            BLOCK=self._block,
            num_warps=self._num_warps,
        )
        return out

    def _layout(self, x: Tensor) -> _Rows:
        assert x.shape[-1] == self._size and x.stride(-1) == 1, f"rows of {self._size} must be contiguous"
        num_rows = x.numel() // self._size
        if x.dim() == 3 and (self._group > 1 or not x.is_contiguous()):
            assert self._group in (1, x.shape[1]), f"{self._group} weights for {x.shape[1]} heads"
            return _Rows(num_rows, x.shape[1], x.stride(0), x.stride(1))
        assert self._group == 1 and (x.dim() == 2 or x.is_contiguous()), "see the class"
        return _Rows(num_rows, 1, x.stride(0) if x.dim() == 2 else self._size, 0)

    def _residual_stride(self, residual: Tensor) -> int:
        assert residual.dim() == 2 and residual.stride(1) == 1, "a residual is [T, C] of contiguous rows"
        return residual.stride(0)
