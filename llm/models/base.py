"""What the runner asks of a language model: shapes, a forward over one flattened batch, encoding in blocks.

A model knows nothing of requests, pages or sampling. Where its layers attend, they call `Attend`; what lies behind it
(pages of the arena, or the flattened batch itself) is the caller's.
Shape suffixes: T tokens of all rows, R rows, C hidden size, V vocabulary, H query heads, K key heads, D head size.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...kernels.attention import ScoreOptions
from ...kernels.registry import Need


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The numbers of a decoder.

    Fields:
        max_len: tokens of context, prompt and answer together.
        head_dim: of keys and of values, the larger one.
        attention_needs: what some layer asks of attention that not every backend has.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_len: int
    attention_needs: frozenset[Need] = frozenset()

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Keys and values of one token in all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * dtype.itemsize


class Attend(Protocol):
    """Attention of one layer of one step. Returns [T, H, D]."""

    def __call__(
        self, layer: int, q_THD: Tensor, kv_T2KD: Tensor, options: ScoreOptions, sinks_H: Tensor | None = None
    ) -> Tensor: ...


class LanguageModel(Protocol):
    """A decoder that is loaded.

    Fields:
        num_blocks: modules that encoding can be cut between: layers, or 1 where the model cannot be cut.
        is_capturable: a forward enqueues the same work whatever the tensors hold, so that a graph can be made of it.
    """

    shape: ModelShape
    dtype: torch.dtype
    num_blocks: int
    is_capturable: bool

    def forward(self, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, rows_R: Tensor | None) -> Tensor:
        """Float32 logits [R, V] of the tokens at `rows_R`; None: of all tokens."""
        ...

    def encode_block(
        self, block: int, carry_TC: Tensor | None, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, until: int
    ) -> Tensor:
        """Runs one block towards `hidden_states[until]`; the first gets no carry, the last returns those states.

        Args:
            until: 0 are the embeddings, `num_layers` is after the final norm. Blocks `max(until, 1)` and above are not
                run where a block is a layer.
        """
        ...


def encode_blocks(model: LanguageModel, until: int) -> int:
    """How many blocks lead to `hidden_states[until]`."""
    return min(max(until, 1), model.num_blocks)


def hidden_state_index(shape: ModelShape, hidden_state: int) -> int:
    """`hidden_states[i]` counted from the start: negative ones count from the end, as in a list."""
    index = hidden_state if hidden_state >= 0 else shape.num_layers + 1 + hidden_state
    if not 0 <= index <= shape.num_layers:
        raise ValueError(f"There is no hidden state {hidden_state}: the model has {shape.num_layers} layers.")
    return index
