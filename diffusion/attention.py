"""Attention of packed segments: each attends to itself alone.

The seam for ragged backends: one that takes all segments in one launch would replace the loop in `attend_ragged`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class Packing:
    """How segments of these lengths lie in a tensor [B, L, ...]: one a row where all are equally long, else one after
    another in a single row. Equal lengths must be neighbours."""

    lengths: tuple[int, ...]

    @property
    def is_uniform(self) -> bool:
        return len(set(self.lengths)) == 1

    @property
    def shape(self) -> tuple[int, int]:
        """(B, L)."""
        return (len(self.lengths), self.lengths[0]) if self.is_uniform else (1, sum(self.lengths))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention without a mask: [B, L, heads, head_dim] each, and so is the result."""
        if self.is_uniform:
            return dense(query, key, value)
        return attend_ragged(query[0], key[0], value[0], self.lengths).unsqueeze(0)


def dense(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """[B, L, heads, head_dim] each; `bias` is added to the scores [B, heads, L, L_key]."""
    mixed = scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=bias
    )
    return mixed.transpose(1, 2)


def attend_ragged(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int]) -> Tensor:
    """[T, heads, head_dim] each. Neighbours of equal length share a launch."""
    mixed = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    start = 0
    for length, equals in groupby(lengths):
        count = len(list(equals))
        part = slice(start, start + count * length)
        group = (count, length, *query.shape[1:])
        mixed[part] = dense(query[part].view(group), key[part].view(group), value[part].view(group)).reshape(
            mixed[part].shape
        )
        start = part.stop
    return mixed
