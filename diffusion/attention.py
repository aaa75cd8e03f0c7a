"""Attention of packed segments, each to itself alone, and of padded batches.

Equally long segments are a batch, for which torch's own attention has the fastest kernels; others go to the ragged
attention operation, whatever backend it has on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hemiola.kernels.attention import RAGGED_ATTENTION, ScoreOptions
from hemiola.kernels.registry import Target


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
    """Attention of every segment of a packing to itself: query, key, value and result are [B, L, heads, head_dim]."""
    ragged = RAGGED_ATTENTION.resolve(Target.of(device, dtype)).backend

    def attend(packing: Packing, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if packing.is_uniform:
            return dense(query, key, value)
        options = ScoreOptions(scale=query.shape[-1] ** -0.5)
        return ragged.run(query[0], key[0], value[0], packing.lengths, options, is_causal=False).unsqueeze(0)

    return attend


def dense(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """[B, L, heads, head_dim] each; `bias` is added to the scores [B, heads, L, L_key]."""
    mixed = scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=bias
    )
    return mixed.transpose(1, 2)
