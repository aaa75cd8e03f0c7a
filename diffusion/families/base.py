"""What a diffusion family is to the runner: three stages, a solver, and the shapes of a request.

A family holds weights and constants, and nothing about a request. Its other half, without torch, is its Edge.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from hemiola.core.request import MediaRequest

from ..edge import Edge
from ..solvers import Schedule, Solver
from ..stage import Clean, Noisy, Prompt, Stage


def drawn(shape: Sequence[int], seed: int) -> Tensor:
    """Starting latents as diffusers draws them: float32, on the CPU, one request at a time."""
    return torch.randn(tuple(shape), generator=torch.Generator("cpu").manual_seed(seed))


class Family(Protocol):
    """One pipeline, loaded."""

    @property
    def edge(self) -> Edge: ...
    @property
    def solver(self) -> Solver: ...
    @property
    def condition_dtype(self) -> torch.dtype: ...
    @property
    def encode(self) -> Stage[Prompt]: ...
    @property
    def denoise(self) -> Stage[Noisy]: ...
    @property
    def decode(self) -> Stage[Clean]: ...

    def schedule(self, request: MediaRequest) -> Schedule:
        """The request's denoise steps."""
        ...

    def latents_shape(self, request: MediaRequest) -> tuple[int, int, int, int]:
        """[channels, frames, height, width]."""
        ...

    def noise(self, request: MediaRequest) -> Tensor:
        """The starting latents, float32, as diffusers draws them from a CPU generator with the request's seed."""
        ...

    def prompts(self, request: MediaRequest) -> Sequence[tuple[int, ...]]:
        """The token ids that need a condition, without padding: the prompt, then the negative one if it is used."""
        ...

    def num_padding(self, request: MediaRequest) -> tuple[int, ...]:
        """Padding tokens that diffusers would feed after each of the prompts; zeros where padding has no effect."""
        ...

    def condition_shape(self, num_tokens: int) -> tuple[int, int]:
        """Of the condition of a prompt of so many tokens; see `condition_dtype`."""
        ...

    def denoise_shape(self, request: MediaRequest) -> Any:
        """What the denoise stage describes the request's row by."""
        ...
