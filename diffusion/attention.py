"""Attention of packed segments, each to itself alone, and of padded batches.

Equally long segments are a batch, for which dense attention is the fastest; others go to the ragged attention
operation. Which backend serves is chosen by device, dtype and head size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from hemiola.kernels.attention import (
    DENSE_ATTENTION,
    RAGGED_ATTENTION,
    DenseAttention,
    RaggedAttention,
    ScoreOptions,
)
from hemiola.kernels.registry import Need, Target


@dataclass(frozen=True, slots=True)
class Packing:
    """How segments of these lengths lie in a tensor [B, L, ...]: one a row where all are equally long, else one after
    another in a single row. Equal lengths should be neighbours."""

    lengths: tuple[int, ...]

    @property
    def is_uniform(self) -> bool:
        return len(set(self.lengths)) == 1

    @property
    def shape(self) -> tuple[int, int]:
        """(B, L)."""
        return (len(self.lengths), self.lengths[0]) if self.is_uniform else (1, sum(self.lengths))


def packed_attention(device: torch.device, dtype: torch.dtype) -> Callable[[Packing, Tensor, Tensor, Tensor], Tensor]:
    """Attention of every segment of a packing to itself: query, key, value and result are [B, L, heads, head_dim].

    The workspaces behind it belong to one stream.
    """
    by_head_dim: dict[int, RaggedAttention] = {}

    def attend(packing: Packing, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if packing.is_uniform:
            return dense(query, key, value)
        head_dim = query.shape[-1]
        ragged = by_head_dim.get(head_dim)
        if ragged is None:
            target = Target.of(device, dtype, head_dim=head_dim)
            ragged = by_head_dim[head_dim] = RAGGED_ATTENTION.resolve(target).backend()
        options = ScoreOptions(scale=head_dim**-0.5)
        return ragged.run(query[0], key[0], value[0], packing.lengths, options, is_causal=False).unsqueeze(0)

    return attend


def dense(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """[B, L, heads, head_dim] each; `bias` is added to the scores [B, heads, L, L_key]."""
    backend = _dense_backend(query.device, query.dtype, query.shape[-1], bias is not None)
    return backend.run(query, key, value, bias)


@lru_cache(maxsize=64)
def _dense_backend(device: torch.device, dtype: torch.dtype, head_dim: int, has_bias: bool) -> type[DenseAttention]:
    needs: tuple[Need, ...] = ("bias",) if has_bias else ()
    return DENSE_ATTENTION.resolve(Target.of(device, dtype, head_dim=head_dim, needs=needs)).backend
