"""The encode stage that families share: layers of a text encoder of the pipeline's own, then the family's blocks that
turn hidden states into a condition. With a text encoder that is served elsewhere, only the latter.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Protocol

import torch
from torch import Tensor

from .stage import Block, Carry, Prompt
from .text_layers import TextLayers, layer_work


class Refiner(Protocol):
    """The family's own part: hidden states [num_tokens, hidden_size] in, a condition [condition_len, dim] out.

    `num_blocks` is at least 1.
    """

    num_blocks: int
    dim: int
    itemsize: int

    def condition_len(self, num_tokens: int) -> int: ...

    def start(self, hidden_LH: Tensor) -> Tensor: ...

    def block(self, index: int, condition_LD: Tensor) -> Tensor: ...


class EncodeStage:
    """Prompts share a step; layers run over each alone. A row's shape is its number of tokens."""

    name = "encode"

    def __init__(self, refiner: Refiner, layers: TextLayers | None) -> None:
        self._refiner = refiner
        self._layers = layers
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)

    def batch_key(self, shape: int) -> Hashable:
        return ()

    def _make_blocks(self, shape: int) -> Sequence[Block]:
        layers, refiner = self._layers, self._refiner
        text = [partial(layers.layer, i) for i in range(layers.num_layers)] if layers is not None else []
        refining = [partial(refiner.block, i) for i in range(refiner.num_blocks)]
        work = layer_work(refiner.condition_len(shape))
        blocks = [Block(partial(self._each_prompt, run), layer_work(shape)) for run in text]
        blocks.append(Block(partial(self._start_refining, refining[0]), work))
        blocks += [Block(partial(self._each_condition, run), work) for run in refining[1:]]
        return tuple(blocks)

    def carried(self, shape: int) -> Mapping[str, int]:
        widest = self._refiner.condition_len(shape) * self._refiner.dim * self._refiner.itemsize
        if self._layers is not None:
            widest = max(widest, shape * self._layers.hidden_size * self._layers.dtype.itemsize)
        return {"prompts": widest}

    def open(self, rows: Sequence[Prompt]) -> Carry:
        hidden = [self._first_hidden(row) for row in rows]
        return Carry({"prompts": _joined(hidden)}, facts=tuple(len(row.token_ids) for row in rows))

    def close(self, carry: Carry, rows: Sequence[Prompt]) -> Sequence[Tensor]:
        return list(carry.tensors["prompts"].split(self._condition_lens(carry)))

    def _first_hidden(self, row: Prompt) -> Tensor:
        if row.hidden_states is not None:
            return row.hidden_states
        assert self._layers is not None, "the text encoder is served elsewhere, so hidden states come with the row"
        return self._layers.embed(row.token_ids)[0]

    def _condition_lens(self, carry: Carry) -> list[int]:
        return [self._refiner.condition_len(num_tokens) for num_tokens in carry.facts]

    def _each_prompt(self, run: Callable[[Tensor], Tensor], carry: Carry) -> None:
        hidden = carry.tensors["prompts"].split(carry.facts)
        carry.tensors["prompts"] = _joined([run(part.unsqueeze(0))[0] for part in hidden])

    def _start_refining(self, run: Callable[[Tensor], Tensor], carry: Carry) -> None:
        if self._layers is not None:
            self._each_prompt(self._layers.finish, carry)
        hidden = carry.tensors["prompts"].split(carry.facts)
        carry.tensors["prompts"] = _joined([run(self._refiner.start(part)) for part in hidden])

    def _each_condition(self, run: Callable[[Tensor], Tensor], carry: Carry) -> None:
        conditions = carry.tensors["prompts"].split(self._condition_lens(carry))
        carry.tensors["prompts"] = _joined([run(part) for part in conditions])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
