"""Linear layers of transformer blocks, bound to the linear operation's best backend on the device.

A block keeps its modules; only what their products run on changes. Weights that are bound cannot be changed any more.
"""

import torch
from torch import Tensor, nn

from hemiola.kernels.linear import LINEAR, Linear
from hemiola.kernels.registry import Target


class BoundLinear(nn.Module):
    """Stands in for an `nn.Linear`: [..., in] to [..., out]."""

    def __init__(self, bound: Linear) -> None:
        super().__init__()
        self._bound = bound

    def forward(self, x: Tensor) -> Tensor:
        y = self._bound(x.flatten(0, -2))
        return y.view(*x.shape[:-1], y.shape[-1])


def bind_linears(blocks: nn.Module) -> None:
    """Binds every linear layer inside of these blocks, where that gains anything: on a CPU, in float32.

    Models in lower precision keep some parameters in float32, so each layer's own weight decides.
    """
    linears = [
        (module, name, child)
        for module in list(blocks.modules())
        for name, child in module.named_children()
        if type(child) is nn.Linear and child.weight.device.type == "cpu" and child.weight.dtype == torch.float32
    ]
    if not linears:
        return
    backend = LINEAR.resolve(Target("cpu", torch.float32)).backend
    for module, name, child in linears:
        setattr(module, name, BoundLinear(backend(child.weight.detach(), child.bias)))
