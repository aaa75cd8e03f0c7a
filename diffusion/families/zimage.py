"""Z-Image: a single-stream transformer over [picture, caption] tokens, and an AutoencoderKL.

Captions do not depend on the denoise step, so their refiner runs once, in the encode stage. Rows of any resolution,
step and guidance share a batch: every guidance branch of every row is a segment with its own modulation.

Shape suffixes: N pictures or segments, L tokens of one, D transformer width, C latent channels, R rows of the batch.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hemiola.core.request import MediaRequest
from hemiola.core.step import Work
from hemiola.kernels.activation import GATED_ACTIVATION
from hemiola.kernels.registry import Target

from ..attention import Packing, packed_attention
from ..bound_linear import bind_linears
from ..components import Components
from ..denoiser_kernels import DenoiserKernels
from ..edge import Edge
from ..edge.zimage import PATCH
from ..encode import EncodeStage
from ..places import repeated
from ..solvers import Schedule, make_solver
from ..stage import Block, Carry, Noisy
from ..text_layers import DecoderLayers
from ..vae_2d import Decode2d
from .base import drawn
from .zimage_layout import (
    Layout,
    Picture,
    Segment,
    Shape,
    Spot,
    layout_of,
    pack,
    pack_rope,
    padded,
    patchified,
    unpatchified,
)

_HIDDEN_STATE = -2


class ZImage:
    """The family. See families/base.py."""

    def __init__(self, edge: Edge, components: Components) -> None:
        self.edge = edge
        self.solver = make_solver(edge.files.config("scheduler"), components.device)
        transformer = components.model("transformer")
        vae = components.model("vae")
        layers = None
        if edge.files.shared_encoder is None:
            layers = DecoderLayers(components.model("text_encoder"), _HIDDEN_STATE)
        for part in (transformer.context_refiner, transformer.noise_refiner, transformer.layers):
            bind_linears(part)
        blocks = _Transformer(transformer)
        refiner = _CaptionRefiner(blocks)
        self.encode = EncodeStage(refiner, layers)
        self.denoise = _Denoise(blocks)
        self.decode = Decode2d(vae)
        self.condition_dtype = blocks.dtype
        self._scale = edge.limits.multiple // PATCH
        self._condition_shape = (refiner.condition_len, refiner.dim)

    def schedule(self, request: MediaRequest) -> Schedule:
        steps = request.num_inference_steps
        sigmas = torch.linspace(1.0, 1 / steps, steps).tolist()
        shape = self.denoise_shape(request)
        return self.solver.schedule(steps, sigmas, num_tokens=shape.num_patches)

    def latents_shape(self, request: MediaRequest) -> tuple[int, int, int, int]:
        return self.denoise.channels, 1, request.height // self._scale, request.width // self._scale

    def noise(self, request: MediaRequest) -> Tensor:
        return drawn(self.latents_shape(request), request.seed)

    def prompts(self, request: MediaRequest) -> Sequence[tuple[int, ...]]:
        encoder = self.edge.encoder
        if not self.edge.is_guided(request.guidance_scale):
            return (request.token_ids[encoder],)
        return request.token_ids[encoder], request.negative_token_ids[encoder]

    def num_padding(self, request: MediaRequest) -> tuple[int, ...]:
        return (0,) * len(self.prompts(request))

    def condition_shape(self, num_tokens: int) -> tuple[int, int]:
        condition_len, dim = self._condition_shape
        return condition_len(num_tokens), dim

    def denoise_shape(self, request: MediaRequest) -> Shape:
        _, _, height, width = self.latents_shape(request)
        return Shape(height, width, tuple(padded(len(ids)) for ids in self.prompts(request)))


class _Transformer:
    """The blocks of diffusers' ZImageTransformer2DModel, driven over packed segments."""

    def __init__(self, model: Any) -> None:
        self.model = model
        key = f"{PATCH}-1"
        self.embedder = model.all_x_embedder[key]
        self.final = model.all_final_layer[key]
        self.dtype = self.embedder.weight.dtype
        self.dim: int = model.dim
        self.device = self.embedder.weight.device
        axes = model.rope_embedder
        self._rope_axes = [
            table.to(self.device) for table in axes.precompute_freqs_cis(axes.axes_dims, axes.axes_lens, axes.theta)
        ]
        self._attend = packed_attention(self.device, self.dtype)
        self.kernels = DenoiserKernels.resolve(self.device, self.dtype)
        self._silu = GATED_ACTIVATION.resolve(Target.of(self.device, self.dtype)).backend("silu")
        self.time_dim: int = model.t_embedder.mlp[2].out_features
        self.rope_dim = sum(table.shape[1] for table in self._rope_axes)
        self.caption_rope = lru_cache(maxsize=32)(self._caption_rope)
        self.picture_rope = lru_cache(maxsize=32)(self._picture_rope)
        self.segment_rope = lru_cache(maxsize=32)(self._segment_rope)

    def _caption_rope(self, length: int) -> Tensor:
        """complex64 [length, rope_dim]: captions lie along the first axis, from position 1."""
        first, rows, columns = self._rope_axes
        along = first[1 : length + 1]
        return torch.cat([along, rows[:1].expand(length, -1), columns[:1].expand(length, -1)], dim=-1)

    def _picture_rope(self, spot: Spot) -> Tensor:
        """complex64 [picture_len, rope_dim]: one position after the caption; padding is at position 0."""
        first, rows, columns = self._rope_axes
        height, width = spot.height // PATCH, spot.width // PATCH
        grid = (height, width, -1)
        axes = [first[spot.caption_len + 1], rows[:height, None], columns[None, :width]]
        patches = torch.cat([axis.expand(grid) for axis in axes], dim=-1).flatten(0, 1)
        origin = torch.cat([first[0], rows[0], columns[0]])
        return torch.cat([patches, origin.expand(padded(len(patches)) - len(patches), -1)])

    def _segment_rope(self, spot: Spot) -> Tensor:
        return torch.cat([self.picture_rope(spot), self.caption_rope(spot.caption_len)])

    def embed_time(self, timestep_R: Tensor) -> Tensor:
        """[R, time_dim]. The model counts time from noise, 0, to the picture, 1."""
        time = (1000 - timestep_R) / 1000
        embedded = self.model.t_embedder(time * self.model.t_scale)
        return embedded.to(self.dtype)  # type: ignore[no-any-return]

    def block(
        self, layer: Any, x_NLD: Tensor, rope_NLF: Tensor, packing: Packing, modulation: "_Modulation | None" = None
    ) -> Tensor:
        """One ZImageTransformerBlock."""
        scale_1, gate_1, scale_2, gate_2, rows = modulation or _UNMODULATED
        add_normed = self.kernels.residual.add_normed
        attention, feed = layer.attention, layer.feed_forward
        normed = self._normed(layer.attention_norm1, x_NLD, scale_1, rows)
        query = self._heads(attention, attention.to_q(normed), attention.norm_q, rope_NLF)
        key = self._heads(attention, attention.to_k(normed), attention.norm_k, rope_NLF)
        value = attention.to_v(normed).unflatten(-1, (attention.heads, -1))
        mixed = attention.to_out[0](self._attend(packing, query, key, value).flatten(2))
        x_NLD = add_normed(x_NLD, mixed, *_parameters(layer.attention_norm2), gate_1, rows)
        normed = self._normed(layer.ffn_norm1, x_NLD, scale_2, rows)
        grown = self._silu.apart(feed.w1(normed), feed.w3(normed))
        return add_normed(x_NLD, feed.w2(grown), *_parameters(layer.ffn_norm2), gate_2, rows)

    def embed_caption(self, hidden_LH: Tensor) -> Tensor:
        """[L, D]: what the text encoder gives, as the refiner reads it."""
        norm, project = self.model.cap_embedder
        return project(self._normed(norm, hidden_LH.to(self.dtype)))  # type: ignore[no-any-return]

    def _normed(self, norm: nn.Module, x: Tensor, scale_RD: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        return self.kernels.norm.rms_norm(x, *_parameters(norm), scale_RD, rows)

    def _heads(self, attention: Any, projected_NLD: Tensor, norm: nn.Module | None, rope_NLF: Tensor) -> Tensor:
        """Queries or keys [N, L, heads, head_dim]; some models do not norm them."""
        by_head = projected_NLD.unflatten(-1, (attention.heads, -1))
        weight, eps = (None, 0.0) if norm is None else _parameters(norm)
        return self.kernels.heads.rotate(by_head, rope_NLF, weight, eps)


class _Modulation(NamedTuple):
    """Of one layer, [R, D] each: scale and gate of attention, scale and gate of the feed-forward; and whose row is
    whose, as kernels/modulation.py has it."""

    scale_1: Tensor | None
    gate_1: Tensor | None
    scale_2: Tensor | None
    gate_2: Tensor | None
    rows: Tensor | None


_UNMODULATED = _Modulation(None, None, None, None, None)


def _parameters(norm: nn.Module) -> tuple[Tensor, float]:
    """Of an RMSNorm of diffusers."""
    weight, eps = norm.weight, norm.eps
    assert isinstance(weight, Tensor) and isinstance(eps, float)
    return weight, eps


class _CaptionRefiner:
    """Hidden states to captions as the transformer reads them: see encode.Refiner."""

    def __init__(self, transformer: _Transformer) -> None:
        self._transformer = transformer
        self._layers: Sequence[Any] = list(transformer.model.context_refiner)
        self.num_blocks = max(1, len(self._layers))
        self.dim = transformer.dim
        self.itemsize = transformer.dtype.itemsize

    def condition_len(self, num_tokens: int) -> int:
        return padded(num_tokens)

    def start(self, hidden_LH: Tensor) -> Tensor:
        embedded = self._transformer.embed_caption(hidden_LH)
        padding = padded(len(embedded)) - len(embedded)
        return torch.cat([embedded, self._transformer.model.cap_pad_token.expand(padding, -1)])

    def block(self, index: int, condition_LD: Tensor) -> Tensor:
        if not self._layers:
            return condition_LD
        rope = self._transformer.caption_rope(len(condition_LD)).unsqueeze(0)
        packing = Packing((len(condition_LD),))
        return self._transformer.block(self._layers[index], condition_LD.unsqueeze(0), rope, packing)[0]


class _Denoise:
    """Blocks: the noise refiner over pictures, then the main layers over [picture, caption] segments."""

    name = "denoise"

    def __init__(self, transformer: _Transformer) -> None:
        self._transformer = transformer
        model = transformer.model
        self.channels: int = model.in_channels
        self._refiners: Sequence[Any] = list(model.noise_refiner)
        self._layers: Sequence[Any] = list(model.layers)
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)
        self._row_of_each = lru_cache(maxsize=64)(self._make_row_of_each)
        self._row_of_each_patch = lru_cache(maxsize=64)(self._make_row_of_each_patch)

    def batch_key(self, shape: Shape) -> Hashable:
        return ()

    def _make_blocks(self, shape: Shape) -> Sequence[Block]:
        pictures = _segments_work([shape.picture_len] * len(shape.pictures))
        segments = _segments_work(shape.segment_lens)
        blocks = [Block(partial(self._refine, layer), pictures, True) for layer in self._refiners]
        blocks.append(Block(partial(self._join_and_run, self._layers[0]), segments, True))
        blocks += [Block(partial(self._run, layer), segments, True) for layer in self._layers[1:]]
        return tuple(blocks)

    def carried(self, shape: Shape) -> Mapping[str, int]:
        transformer = self._transformer
        width = transformer.dim * transformer.dtype.itemsize
        picture_tokens, tokens = len(shape.pictures) * shape.picture_len, sum(shape.segment_lens)
        rope = transformer.rope_dim * torch.complex64.itemsize
        return {
            "x": max(picture_tokens, tokens) * width,
            "captions": sum(shape.caption_lens) * width,
            "time": transformer.time_dim * transformer.dtype.itemsize,
            "picture_rope": picture_tokens * rope,
            "picture_rows": picture_tokens * torch.int64.itemsize,
            "rope": tokens * rope,
            "rows": tokens * torch.int64.itemsize,
        }

    # The ends of a step

    def open(self, rows: Sequence[Noisy]) -> Carry:
        transformer = self._transformer
        shapes = [Shape(row.latents.shape[2], row.latents.shape[3], tuple(map(len, row.conditions))) for row in rows]
        layout = layout_of(tuple(shapes))
        embedded = self._embedded([row.latents for row in rows])
        captions = [caption for row in rows for caption in row.conditions]
        tensors = {
            "x": pack([embedded[picture.row] for picture in layout.pictures], layout.picture_packing),
            "captions": torch.cat(captions),
            "time": transformer.embed_time(torch.stack([row.timestep for row in rows])),
            "picture_rope": pack_rope(layout.pictures, transformer.picture_rope, layout.picture_packing),
            "picture_rows": self._row_of_each(layout.pictures, layout.picture_packing),
            "rope": pack_rope(layout.segments, transformer.segment_rope, layout.segment_packing),
            "rows": self._row_of_each(layout.segments, layout.segment_packing),
        }
        return Carry(tensors, layout)

    def close(self, carry: Carry, rows: Sequence[Noisy]) -> Sequence[Tensor]:
        layout: Layout = carry.facts
        final = self._transformer.final
        tokens = self._picture_tokens(carry)
        scale_RD = final.adaLN_modulation(carry.tensors["time"])
        rows_T = self._row_of_each_patch(layout)
        normed = self._transformer.kernels.norm.layer_norm(tokens, final.norm_final.eps, scale_RD, rows=rows_T)
        lengths = [layout.shapes[segment.row].num_patches for segment in layout.segments]
        outputs = final.linear(normed).float().split(lengths)
        return [
            _guided([unpatchified(outputs[i], shape, self.channels) for i in branches], row.guidance_scale)
            for row, shape, branches in zip(rows, layout.shapes, layout.branches, strict=True)
        ]

    # Blocks

    def _refine(self, layer: Any, carry: Carry) -> None:
        layout: Layout = carry.facts
        self._through(layer, carry, layout.picture_packing, "picture_")

    def _join_and_run(self, layer: Any, carry: Carry) -> None:
        layout: Layout = carry.facts
        tensors = carry.tensors
        pictures = tensors["x"].flatten(0, 1).split(layout.picture_packing.lengths)
        captions = tensors["captions"]
        parts = [part for s in layout.segments for part in (pictures[s.picture], captions[s.caption.slice])]
        tensors["x"] = pack(parts, layout.segment_packing)
        self._run(layer, carry)

    def _run(self, layer: Any, carry: Carry) -> None:
        layout: Layout = carry.facts
        self._through(layer, carry, layout.segment_packing)

    def _through(self, layer: Any, carry: Carry, packing: Packing, of: str = "") -> None:
        tensors = carry.tensors
        modulation = self._modulation(layer, tensors["time"], tensors[f"{of}rows"])
        tensors["x"] = self._transformer.block(layer, tensors["x"], tensors[f"{of}rope"], packing, modulation)

    # Parts

    def _embedded(self, latents: Sequence[Tensor]) -> Sequence[Tensor]:
        """Picture tokens of each row, padded [picture_len, D]."""
        patches = [patchified(tensor.to(self._transformer.dtype)) for tensor in latents]
        tokens = self._transformer.embedder(torch.cat(patches)).split([len(part) for part in patches])
        pad_token = self._transformer.model.x_pad_token
        return [torch.cat([part, pad_token.expand(padded(len(part)) - len(part), -1)]) for part in tokens]

    def _make_row_of_each(self, parts: tuple[Picture | Segment, ...], packing: Packing) -> Tensor:
        """Which row modulates each segment [N], or each token [T] of a ragged pack; [1] where one row is alone."""
        rows = [part.row for part in parts]
        if len(set(rows)) == 1:
            return repeated(rows[:1], [1], self._transformer.device)
        return repeated(rows, [1] * len(rows) if packing.is_uniform else packing.lengths, self._transformer.device)

    def _make_row_of_each_patch(self, layout: Layout) -> Tensor:
        """For `_picture_tokens`, [T]."""
        rows = [segment.row for segment in layout.segments]
        return repeated(rows, [layout.shapes[row].num_patches for row in rows], self._transformer.device)

    def _modulation(self, layer: Any, time_R: Tensor, rows: Tensor) -> _Modulation:
        scale_1, gate_1, scale_2, gate_2 = layer.adaLN_modulation(time_R).chunk(4, dim=-1)
        return _Modulation(scale_1, gate_1.tanh(), scale_2, gate_2.tanh(), rows)

    def _picture_tokens(self, carry: Carry) -> Tensor:
        """Of all segments in turn, the tokens of the picture without padding [T, D]."""
        layout: Layout = carry.facts
        segments = carry.tensors["x"].flatten(0, 1).split(layout.segment_packing.lengths)
        counts = [layout.shapes[segment.row].num_patches for segment in layout.segments]
        return torch.cat([part[:count] for part, count in zip(segments, counts, strict=True)])


def _segments_work(lengths: Sequence[int]) -> Work:
    return Work(rows=1, new_tokens=sum(lengths), attended_pairs=sum(n * n for n in lengths), blocks=1)


def _guided(branches: Sequence[Tensor], scale: float) -> Tensor:
    """The model predicts towards the picture, the solver walks along the flow towards noise: hence the sign."""
    if len(branches) == 1:
        return -branches[0]
    positive, negative = branches
    return -(positive + scale * (positive - negative))
