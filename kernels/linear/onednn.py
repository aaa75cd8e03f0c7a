"""Linear layers on a CPU with weights in oneDNN's blocked layout, packed once at load time.

Measured on one Zen 4 core in float32 against `torch.nn.functional.linear`: 1.3 to 2.4 times as fast for 2 to 16 rows,
a little faster for long prompts. For a single row a plain product is best: with the transposed weight where there are
more outputs than inputs (2 to 4 times as fast), else with the weight as it is. Small weights are therefore kept twice.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ..registry import Target

# A larger weight is kept in the packed layout alone: reading it from memory takes most of the time in any layout.
MAX_DOUBLED_BYTES = 16 << 20


class OneDnnLinear:
    """See `Linear`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self._bias = bias
        self._run = torch.ops.mkldnn._linear_pointwise.default
        self._one_row = _row_product(weight, bias)

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        if target.device_type != "cpu":
            return "it is for CPUs"
        if target.dtype != torch.float32:
            return "it packs float32 weights only"
        if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            return "this build of torch has no oneDNN"
        return None

    def __call__(self, x: Tensor) -> Tensor:
        if self._one_row is not None and x.shape[0] == 1:
            return self._one_row(x)
        y: Tensor = self._run(x, self._packed, self._bias, "none", [], "")
        return y


def _row_product(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
    """The fastest product for a single row; None where the weight is too large to be kept twice."""
    num_out, num_in = weight.shape
    if weight.numel() * weight.element_size() > MAX_DOUBLED_BYTES:
        return None
    if num_out < num_in:
        kept = weight.clone()
        return lambda x: functional.linear(x, kept, bias)
    transposed = weight.t().contiguous()
    if bias is None:
        return lambda x: torch.mm(x, transposed)
    return lambda x: torch.addmm(bias, x, transposed)
