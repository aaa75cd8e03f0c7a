"""FLUX.1's encode stage: layers of CLIP, layers of T5, then both results as the transformer reads them.

A condition is [1 + num_t5_tokens, D]: what the pooled state of CLIP adds to the modulation, then the text.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from ..stage import Block, Carry, Prompt
from ..text_layers import ClipLayers, T5Layers, TextLayers, layer_work


class FluxEncode:
    """Prompts share a step; layers run over each alone. A row's token ids are `clip_len` of CLIP, then those of T5."""

    name = "encode"

    def __init__(self, clip: ClipLayers, t5: T5Layers, transformer: Any, clip_len: int) -> None:
        self._encoders: dict[str, TextLayers] = {"clip": clip, "t5": t5}
        self._clip = clip
        self._clip_len = clip_len
        self._embed_pooled = transformer.time_text_embed.text_embedder
        self._embed_text = transformer.context_embedder
        self.dtype: torch.dtype = transformer.context_embedder.weight.dtype
        self.dim: int = transformer.context_embedder.out_features
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)

    def condition_len(self, num_tokens: int) -> int:
        return 1 + num_tokens - self._clip_len

    def batch_key(self, shape: int) -> Hashable:
        return ()

    def _make_blocks(self, shape: int) -> Sequence[Block]:
        lengths = {"clip": self._clip_len, "t5": shape - self._clip_len}
        blocks = [
            Block(partial(self._each_prompt, name, index), layer_work(lengths[name]))
            for name, layers in self._encoders.items()
            for index in range(layers.num_layers)
        ]
        return (*blocks, Block(self._condition, layer_work(self.condition_len(shape))))

    def carried(self, shape: int) -> Mapping[str, int]:
        lengths = {"clip": self._clip_len, "t5": shape - self._clip_len}
        sizes = {
            name: lengths[name] * layers.hidden_size * layers.dtype.itemsize for name, layers in self._encoders.items()
        }
        return {**sizes, "conditions": self.condition_len(shape) * self.dim * self.dtype.itemsize}

    def open(self, rows: Sequence[Prompt]) -> Carry:
        ids: dict[str, list[Sequence[int]]] = {
            "clip": [self._clip.read(row.token_ids[: self._clip_len]) for row in rows],
            "t5": [row.token_ids[self._clip_len :] for row in rows],
        }
        tensors = {
            name: torch.cat([layers.embed(each)[0] for each in ids[name]]) for name, layers in self._encoders.items()
        }
        return Carry(tensors, tuple((name, tuple(map(len, each))) for name, each in ids.items()))

    def close(self, carry: Carry, rows: Sequence[Prompt]) -> Sequence[Tensor]:
        return list(carry.tensors["conditions"].split([1 + length for length in dict(carry.facts)["t5"]]))

    def _each_prompt(self, name: str, index: int, carry: Carry) -> None:
        layers, hidden = self._encoders[name], self._split(name, carry)
        carry.tensors[name] = torch.cat([layers.layer(index, part.unsqueeze(0))[0] for part in hidden])

    def _condition(self, carry: Carry) -> None:
        conditions = []
        for clip, t5 in zip(self._split("clip", carry), self._split("t5", carry), strict=True):
            pooled = self._clip.finish(clip[None])[0, -1:]
            text = self._encoders["t5"].finish(t5[None])[0]
            conditions += [self._embed_pooled(pooled.to(self.dtype)), self._embed_text(text.to(self.dtype))]
        carry.tensors = {"conditions": torch.cat(conditions)}

    def _split(self, name: str, carry: Carry) -> Sequence[Tensor]:
        return list(carry.tensors[name].split(dict(carry.facts)[name]))
