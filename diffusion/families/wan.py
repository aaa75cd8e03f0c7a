"""Wan 2.1, text to video: a transformer over space-time patches with cross-attention to text, and AutoencoderKLWan.

diffusers pads texts with zeros and attends to the padding. All padding keys of a text are equal, so one of them with
the logarithm of their number added to its score does the same; texts are embedded once, in the encode stage.

Shape suffixes: R rows of the batch, N guidance branches of all rows (the positive ones first), L space-time tokens,
T text tokens, D transformer width.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hemiola.core.errors import UnsupportedModel
from hemiola.core.request import MediaRequest
from hemiola.core.step import Work

from ..bound_linear import bind_linears
from ..components import Components
from ..edge import Edge
from ..edge.wan import PAD_ID
from ..encode import EncodeStage
from ..places import Span, repeated
from ..solvers import Schedule, make_solver
from ..stage import Block, Carry, Noisy
from ..text_layers import T5Layers
from ..vae_wan import DecodeWan
from .base import drawn
from .wan_blocks import Branch, WanBlocks

_MANY_TOKENS = 8192
"""From so many on, a guidance branch is a block of its own: together they are no faster, and twice as long a wait."""


class Wan:
    """The family. See families/base.py."""

    def __init__(self, edge: Edge, components: Components) -> None:
        self.edge = edge
        self.solver = make_solver(edge.files.config("scheduler"), components.device)
        transformer = components.model("transformer")
        bind_linears(transformer.blocks)
        refiner = _TextEmbedder(transformer)
        self.encode = EncodeStage(refiner, T5Layers(components.model("text_encoder")))
        self.denoise = _Denoise(transformer)
        self.decode = DecodeWan(components.model("vae"))
        self._condition_shape = (refiner.condition_len, refiner.dim)
        self.condition_dtype = refiner.dtype
        self._spatial = edge.limits.multiple // transformer.config.patch_size[1]

    def schedule(self, request: MediaRequest) -> Schedule:
        return self.solver.schedule(request.num_inference_steps)

    def latents_shape(self, request: MediaRequest) -> tuple[int, int, int, int]:
        frames = (request.num_frames - 1) // self.edge.limits.frame_multiple + 1
        return self.denoise.channels, frames, request.height // self._spatial, request.width // self._spatial

    def noise(self, request: MediaRequest) -> Tensor:
        return drawn(self.latents_shape(request), request.seed)

    def prompts(self, request: MediaRequest) -> Sequence[tuple[int, ...]]:
        return [unpadded(ids) for ids in self._padded_prompts(request)]

    def num_padding(self, request: MediaRequest) -> tuple[int, ...]:
        return tuple(len(ids) - len(unpadded(ids)) for ids in self._padded_prompts(request))

    def condition_shape(self, num_tokens: int) -> tuple[int, int]:
        condition_len, dim = self._condition_shape
        return condition_len(num_tokens), dim

    def denoise_shape(self, request: MediaRequest) -> "_Shape":
        _, frames, height, width = self.latents_shape(request)
        return _Shape(frames, height, width, tuple(self.condition_shape(len(ids))[0] for ids in self.prompts(request)))

    def _padded_prompts(self, request: MediaRequest) -> Sequence[tuple[int, ...]]:
        encoder = self.edge.encoder
        if not self.edge.is_guided(request.guidance_scale):
            return (request.token_ids[encoder],)
        return request.token_ids[encoder], request.negative_token_ids[encoder]


def unpadded(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    end = len(token_ids)
    while end > 1 and token_ids[end - 1] == PAD_ID:
        end -= 1
    return token_ids[:end]


class _Shape(NamedTuple):
    """Of a denoise row: latent frames and pixels, and the condition's length of each guidance branch."""

    frames: int
    height: int
    width: int
    text_lens: tuple[int, ...]


class _TextEmbedder:
    """Hidden states to embedded texts, followed by what padding becomes: see encode.Refiner."""

    num_blocks = 1

    def __init__(self, transformer: Any) -> None:
        self._embedder = transformer.condition_embedder.text_embedder
        weight = self._embedder.linear_2.weight
        self.dim: int = weight.shape[0]
        self.itemsize: int = weight.dtype.itemsize
        self.dtype: torch.dtype = weight.dtype

    def condition_len(self, num_tokens: int) -> int:
        return num_tokens + 1

    def start(self, hidden_LH: Tensor) -> Tensor:
        hidden_LH = hidden_LH.to(self.dtype)
        return torch.cat([hidden_LH, hidden_LH.new_zeros(1, hidden_LH.shape[1])])

    def block(self, index: int, condition_LD: Tensor) -> Tensor:
        return self._embedder(condition_LD)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Fields: latent frames, height and width of all rows; how many rows; their branches, all positive ones before the
    negative."""

    sides: tuple[int, int, int]
    num_rows: int
    branches: tuple[Branch, ...]

    def span(self, part: "_Part") -> Span:
        start = self.num_rows if part is _Part.NEGATIVE else 0
        return Span(start, self.num_rows if part is _Part.POSITIVE else len(self.branches))


class _Part(Enum):
    """Which guidance branches a block runs over."""

    ALL = "all"
    POSITIVE = "positive"
    NEGATIVE = "negative"

    def of(self, branches: Sequence[int]) -> Sequence[int]:
        """Of what there is for each branch of one row."""
        return {_Part.ALL: branches, _Part.POSITIVE: branches[:1], _Part.NEGATIVE: branches[1:]}[self]


class _Denoise:
    """Blocks: halves of the transformer blocks. Rows of one batch have equal latents."""

    name = "denoise"

    def __init__(self, model: Any) -> None:
        config = model.config
        for option in ("image_dim", "added_kv_proj_dim"):
            if config[option] is not None:
                raise UnsupportedModel(f"WanTransformer3DModel: '{option}' is not supported: only text to video is.")
        if config.qk_norm != "rms_norm_across_heads":
            raise UnsupportedModel(f"WanTransformer3DModel: 'qk_norm' is '{config.qk_norm}'.")
        self._model = model
        self._patch: tuple[int, int, int] = tuple(config.patch_size)
        self._heads: int = config.num_attention_heads
        self._dim: int = config.num_attention_heads * config.attention_head_dim
        self._dtype: torch.dtype = model.patch_embedding.weight.dtype
        self._device: torch.device = model.patch_embedding.weight.device
        self._run = WanBlocks(self._device, self._dtype, self._heads, config.eps)
        self._shares = (4 * self._dim, 2 * self._dim + 2 * config.ffn_dim)
        self.channels: int = config.in_channels
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)
        self._rope = lru_cache(maxsize=32)(self._make_rope)
        self._row_of_each = lru_cache(maxsize=64)(self._make_row_of_each)
        self._bias = lru_cache(maxsize=64)(self._make_bias)

    def batch_key(self, shape: _Shape) -> Hashable:
        return shape[:3]

    def carried(self, shape: _Shape) -> Mapping[str, int]:
        tokens, branches = self._num_tokens(shape[:3]), len(shape.text_lens)
        width = self._dim * self._dtype.itemsize
        return {
            "x": branches * tokens * width,
            "text": sum(shape.text_lens) * width,
            "bias": sum(shape.text_lens) * self._dtype.itemsize,
            "rope": tokens * self._dim // self._heads // 2 * torch.complex64.itemsize,
            "time": self._dim * torch.float32.itemsize,
            "modulation": 6 * self._dim * torch.float32.itemsize,
            "rows": branches * torch.int64.itemsize,
        }

    # The ends of a step

    def open(self, rows: Sequence[Noisy]) -> Carry:
        model = self._model
        facts = _packed(rows)
        latents = torch.stack([row.latents for row in rows]).to(self._dtype)
        index = self._row_of_each(facts.branches)
        embedder = model.condition_embedder
        timestep = torch.stack([row.timestep for row in rows])
        frequencies = embedder.timesteps_proj(timestep)
        time = embedder.time_embedder(frequencies.to(embedder.time_embedder.linear_1.weight.dtype)).to(self._dtype)
        modulation = embedder.time_proj(embedder.act_fn(time)).unflatten(1, (6, -1))
        texts = [text for row in rows for text in row.conditions]
        tensors = {
            "x": model.patch_embedding(latents).flatten(2).transpose(1, 2)[index],
            "text": torch.cat(texts),
            "bias": self._bias(facts.branches),
            "rope": self._rope(facts.sides),
            "time": time,
            "modulation": modulation,
            "rows": index,
        }
        return Carry(tensors, facts)

    def close(self, carry: Carry, rows: Sequence[Noisy]) -> Sequence[Tensor]:
        facts: _Facts = carry.facts
        model, tensors = self._model, carry.tensors
        shift_RD, scale_RD = (model.scale_shift_table + tensors["time"].unsqueeze(1)).unbind(1)
        normed = self._run.normed(tensors["x"], shift_RD, scale_RD, tensors["rows"])
        output = model.proj_out(normed).float()
        predictions = self._unpatchified(output, facts.sides).unbind()
        guided = list(predictions[: len(rows)])
        for branch, negative in zip(facts.branches[len(rows) :], predictions[len(rows) :], strict=True):
            scale_of_row = rows[branch.row].guidance_scale
            guided[branch.row] = negative + scale_of_row * (guided[branch.row] - negative)
        return guided

    # Blocks

    def _make_blocks(self, shape: _Shape) -> Sequence[Block]:
        """Two for each of the model's, or four where one branch alone fills a device."""
        tokens = self._num_tokens(shape[:3])
        parts = (_Part.POSITIVE, _Part.NEGATIVE) if tokens >= _MANY_TOKENS else (_Part.ALL,)
        pieces = [
            (half, part, _half_work(index, tokens, part.of(shape.text_lens), self._shares))
            for index, half in enumerate((self._run.first_half, self._run.second_half))
            for part in parts
        ]
        return tuple(
            Block(partial(self._half, half, block, part), work, True)
            for block in self._model.blocks
            for half, part, work in pieces
        )

    def _half(self, half: Callable[..., Tensor], block: Any, part: _Part, carry: Carry) -> None:
        facts: _Facts = carry.facts
        tensors, span = carry.tensors, facts.span(part)
        x_NLD = tensors["x"]
        if span.start == span.stop:
            return
        here = span.slice
        changed = half(block, x_NLD[here], tensors["rows"][here], facts.branches[here], tensors)
        whole = len(changed) == len(x_NLD)
        tensors["x"] = changed if whole else torch.cat([x_NLD[: span.start], changed, x_NLD[span.stop :]])

    # Parts

    def _num_tokens(self, sides: Sequence[int]) -> int:
        return math.prod(side // patch for side, patch in zip(sides, self._patch, strict=True))

    def _make_rope(self, sides: tuple[int, int, int]) -> Tensor:
        """complex64 [L, head_dim / 2]."""
        like = torch.empty(1, 1, *sides, device=self._device)
        cosines, sines = self._model.rope(like)
        return torch.complex(cosines[0, :, 0, 0::2].float(), sines[0, :, 0, 1::2].float())

    def _make_row_of_each(self, branches: tuple[Branch, ...]) -> Tensor:
        """int64 [N]."""
        return repeated([branch.row for branch in branches], [1] * len(branches), self._device)

    def _make_bias(self, branches: tuple[Branch, ...]) -> Tensor:
        """What is added to the score of each text token: the logarithm of how many of them there are."""
        biases = torch.zeros(sum(b.text.stop - b.text.start for b in branches), dtype=self._dtype, device=self._device)
        for branch in branches:
            bias = math.log(branch.num_padding) if branch.num_padding else -math.inf
            biases[branch.text.stop - 1 : branch.text.stop].fill_(bias)  # by the device: assigning to an element waits
        return biases

    def _unpatchified(self, tokens_NLD: Tensor, sides: tuple[int, int, int]) -> Tensor:
        grid = [side // patch for side, patch in zip(sides, self._patch, strict=True)]
        split = tokens_NLD.view(len(tokens_NLD), *grid, *self._patch, -1)
        return split.permute(0, 7, 1, 4, 2, 5, 3, 6).reshape(len(tokens_NLD), -1, *sides)


def _half_work(half: int, tokens: int, text_lens: Sequence[int], shares: tuple[int, int]) -> Work:
    """Tokens are shared between the halves as their linear layers' multiplications are."""
    queries = len(text_lens) * tokens
    pairs = queries * tokens if half == 0 else tokens * sum(text_lens)
    first = queries * shares[0] // sum(shares)
    return Work(rows=1, new_tokens=first if half == 0 else queries - first, attended_pairs=pairs, blocks=1)


def _packed(rows: Sequence[Noisy]) -> _Facts:
    positive: list[Branch] = []
    negative: list[Branch] = []
    start = 0
    for row_idx, row in enumerate(rows):
        for branches, text, padding in zip((positive, negative), row.conditions, row.num_padding, strict=False):
            branches.append(Branch(row_idx, Span(start, start + len(text)), padding))
            start += len(text)
    _, *sides = rows[0].latents.shape
    return _Facts((sides[0], sides[1], sides[2]), len(rows), (*positive, *negative))
