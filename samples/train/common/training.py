"""What the image and the video trainers share: a Muon + AdamW optimiser, a wall-clock schedule, an average of the
weights, and a training step captured as one CUDA graph.

Everything that changes between steps (learning rate, step count) lives in device tensors, so that a captured step can
be replayed. Nothing here knows a model, its data or its loss. On a CPU the same code runs eagerly.

Muon: Keller Jordan, 2024 (https://kellerjordan.github.io/posts/muon); the update has the root mean square of AdamW's
(factor 0.2 sqrt(max(rows, columns)), "Muon is Scalable for LLM Training", arXiv 2502.16982), so both share one rate.
"""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def orthogonalise(g_NRC: Tensor, steps: int = 5) -> Tensor:
    """Newton-Schulz iteration towards the nearest orthogonal matrices, for a stack of equal shapes."""
    tall = g_NRC.shape[1] > g_NRC.shape[2]
    x = (g_NRC.mT if tall else g_NRC).to(torch.bfloat16 if g_NRC.is_cuda else torch.float32)
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(steps):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    result: Tensor = (x.mT if tall else x).to(g_NRC.dtype)
    return result


class MixedOptimizer:
    """Muon for `matrices` (any tensor, seen as [first dimension, rest]), AdamW for `vectors`; updates them in place."""

    def __init__(
        self,
        matrices: Sequence[Tensor],
        vectors: Sequence[Tensor],
        *,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        clip_norm: float = 1.0,
    ) -> None:
        self.parameters = [*matrices, *vectors]
        self._matrices, self._vectors = list(matrices), list(vectors)
        self._weight_decay, self._momentum, self._betas, self._clip_norm = weight_decay, momentum, betas, clip_norm
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, matrix in enumerate(matrices):
            groups[(matrix.shape[0], matrix[0].numel())].append(index)
        device = self.parameters[0].device
        self._groups = [
            (shape, members, torch.zeros(len(members), *shape, device=device)) for shape, members in groups.items()
        ]
        size = sum(v.numel() for v in vectors)
        self._first, self._second = torch.zeros(size, device=device), torch.zeros(size, device=device)
        self._count = torch.zeros((), device=device)
        self.rate = torch.zeros((), device=device)  # learning rate, set from outside before each step

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> Tensor:
        """One update from `gradients` (same order as `parameters`); returns their norm before clipping."""
        grads = [g.float() for g in gradients]
        norm: Tensor = torch.stack(torch._foreach_norm(grads)).norm()
        scale = (self._clip_norm / (norm + 1e-6)).clamp(max=1.0)
        grads = list(torch._foreach_mul(grads, scale))
        self._count += 1
        self._step_matrices(grads[: len(self._matrices)])
        if self._vectors:
            self._step_vectors(grads[len(self._matrices) :])
        return norm

    def _step_matrices(self, grads: list[Tensor]) -> None:
        if self._matrices and self._weight_decay:
            torch._foreach_mul_(self._matrices, 1 - self.rate * self._weight_decay)
        for (rows, columns), members, buffer in self._groups:
            g = torch.stack([grads[i].reshape(rows, columns) for i in members])
            buffer.lerp_(g, 1 - self._momentum)
            update = orthogonalise(g.lerp(buffer, self._momentum)) * (-0.2 * max(rows, columns) ** 0.5 * self.rate)
            targets = [self._matrices[i] for i in members]
            torch._foreach_add_(targets, [u.reshape(t.shape) for u, t in zip(update, targets, strict=True)])

    def _step_vectors(self, grads: list[Tensor]) -> None:
        g = torch.cat([grad.reshape(-1) for grad in grads])
        b1, b2 = self._betas
        self._first.lerp_(g, 1 - b1)
        self._second.lerp_(g.square(), 1 - b2)
        first = self._first / (1 - b1**self._count)
        second = self._second / (1 - b2**self._count)
        update = first / (second.sqrt() + 1e-8) * -self.rate
        parts = update.split([v.numel() for v in self._vectors])
        torch._foreach_add_(self._vectors, [p.view_as(v) for p, v in zip(parts, self._vectors, strict=True)])


class Average:
    """Exponential moving average of some tensors (in fp32)."""

    def __init__(self, tensors: Sequence[Tensor], decay: float) -> None:
        self._live, self._decay = list(tensors), decay
        self.values = [t.detach().clone().float() for t in tensors]

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self.values, self._live, 1 - self._decay)

    @torch.no_grad()
    def restart(self) -> None:
        """Forget the past: the average becomes the present weights."""
        torch._foreach_copy_(self.values, self._live)


@dataclass(frozen=True)
class Schedule:
    """Learning rate against wall-clock time: warm-up by steps, flat, then linear to zero.

    `start` and `end` are the share of the whole schedule that this run covers, so that several calls make up
    one schedule. `warmup_steps` apply to every run, because a resumed run starts without momentum.
    """

    seconds: float
    peak: float
    warmup_steps: int = 100
    decay_share: float = 0.6
    start: float = 0.0
    end: float = 1.0

    def progress(self, elapsed_s: float) -> float:
        return self.start + (self.end - self.start) * min(elapsed_s / self.seconds, 1.0)

    def rate(self, step: int, elapsed_s: float) -> float:
        decay = min(1.0, (1.0 - self.progress(elapsed_s)) / self.decay_share)
        return self.peak * min(1.0, (step + 1) / self.warmup_steps) * decay


class CapturedStep:
    """`run` called once a step. On CUDA it runs a few times for real, is captured as a graph and then replayed.

    `run` must be free of host synchronisation and read whatever varies from device tensors. Random numbers come from
    the default generator, which graphs advance correctly.
    """

    def __init__(self, run: Callable[[], Tensor], device: torch.device, warmup: int = 3) -> None:
        self._run, self._cuda, self._warmup = run, device.type == "cuda", warmup
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result = torch.zeros((), device=device)
        self._calls = 0

    def __call__(self) -> Tensor:
        """The result of `run`; on CUDA a tensor that the next call overwrites."""
        self._calls += 1
        if self._cuda:
            torch.cuda.current_stream().synchronize()  # else the host runs seconds ahead of the schedule's clock
        if self._graph is not None:
            self._graph.replay()
        elif not self._cuda:
            self._result = self._run()
        elif self._calls <= self._warmup:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._result = self._run()
            torch.cuda.current_stream().wait_stream(side)
        else:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                self._result = self._run()
            self._graph = graph
            graph.replay()  # capturing records the work without doing it
        return self._result


def works(what: str, trial: Callable[[], object]) -> bool:
    """Whether `trial` runs. A compiler that fails must cost speed, not the run, so any error counts."""
    try:
        trial()
    except Exception:
        traceback.print_exc()
        print(f"{what} failed (see above); going on without it", flush=True)
        return False
    return True


class Clock:
    """Seconds since the start of the programme's own budget."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start
