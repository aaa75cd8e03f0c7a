"""Choosing one token per row from logits.

A row's kept tokens are those that fewer than `top_k` tokens are likelier than, and before which less than `top_p` of
the probability lies when sorted by likelihood (of those that top_k kept); equally likely ones are kept together. Their
probabilities, in order of token id, are summed up, and the one token is taken that the row's uniform number falls on.
So a row's token depends on nothing but its own logits and numbers.
Shape suffixes: R rows, V vocabulary.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..registry import Operation, Target


@dataclass(frozen=True, slots=True)
class Draw:
    """Parameters of rows that are sampled, each [R] on the device.

    Fields:
        temperature: float32, above 0.
        top_p: float32 in (0, 1]; 1 is off.
        top_k: int64; 0 is off.
        uniform: float64 in [0, 1), multiples of 2^-32, so that times a sum it is less than that sum.
    """

    temperature_R: Tensor
    top_p_R: Tensor
    top_k_R: Tensor
    uniform_R: Tensor


class Sampler(Protocol):
    """Both take float32 logits [R, V] and return token ids, int64 [R]: some token also of rows with infinite logits or
    what is no number, since the next step looks up whatever was chosen."""

    @classmethod
    def why_not(cls, target: Target) -> str | None: ...

    @staticmethod
    def greedy(logits_RV: Tensor) -> Tensor: ...

    @staticmethod
    def sample(logits_RV: Tensor, draw: Draw) -> Tensor: ...


SAMPLER: Operation[Sampler] = Operation(
    "sampling",
    {
        "triton": "hemiola.kernels.sampling.triton_backend:TritonSampler",
        "torch": "hemiola.kernels.sampling.torch_reference:TorchSampler",
    },
)
