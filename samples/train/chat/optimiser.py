"""Muon for the matrices, AdamW for the embedding and the norms.

Muon (Jordan et al. 2024): momentum, then the nearest semi-orthogonal matrix by five Newton-Schulz steps. Matrices of
one shape are stacked, so a step is a few batched products.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Newton-Schulz iteration on a stack [n, rows, columns]."""
    a, b, c = _COEFFICIENTS
    x: Tensor = matrices.float()
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-6)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if is_tall else x


class Muon:
    """Momentum 0.95 with Nesterov; the step of a matrix is lr x sqrt(max(1, rows / columns))."""

    def __init__(self, parameters: Sequence[Tensor], momentum: float = 0.95, decay: float = 0.02) -> None:
        self.momentum, self.decay = momentum, decay
        self.groups: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            self.groups[tuple(parameter.shape)].append(parameter)
        self.buffers = {s: torch.zeros_like(torch.stack([p.data for p in g])) for s, g in self.groups.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for shape, group in self.groups.items():
            gradient = torch.stack([_gradient(p) for p in group])
            buffer = self.buffers[shape]
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp(buffer, self.momentum)).float()
            scale = lr * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(group, 1 - lr * self.decay)
            torch._foreach_add_(group, list(update.unbind()), alpha=-scale)

    def state(self) -> dict[str, Tensor]:
        return {"x".join(map(str, shape)): buffer for shape, buffer in self.buffers.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        for shape, buffer in self.buffers.items():
            buffer.copy_(state["x".join(map(str, shape))])


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


class Optimisers:
    """Both optimisers behind one `step(scale)`; scale is the schedule's factor on the learning rates."""

    def __init__(self, model: nn.Module, muon_lr: float = 0.02, adam_lr: float = 0.004) -> None:
        matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
        self.muon_lr, self.adam_lr = muon_lr, adam_lr
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)

    def step(self, scale: float) -> None:
        self.adam.param_groups[0]["lr"] = self.adam_lr * scale
        self.adam.step()
        self.muon.step(self.muon_lr * scale)
        self.adam.zero_grad(set_to_none=True)
        for group in self.muon.groups.values():
            for parameter in group:
                parameter.grad = None
