"""FLUX.1: a transformer whose double blocks keep text and picture apart and whose single blocks see them as one,
modulated by time, the pooled prompt and, in models for it, guidance; and an AutoencoderKL.

Rows of any resolution, step and guidance share a batch: every guidance branch of every row is a segment with its own
modulation. Texts do not depend on the step, so they are embedded once, in the encode stage.

Shape suffixes: R rows of the batch, T picture tokens of all segments, B and L segments as attention sees them, D
transformer width, F half the head size.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import silu

from hemiola.core.errors import UnsupportedModel
from hemiola.core.request import MediaRequest
from hemiola.core.step import Work

from ..bound_linear import bind_linears
from ..components import Components
from ..edge import Edge
from ..edge.flux import PATCH, FluxEdge
from ..places import repeated
from ..solvers import Schedule, make_solver
from ..stage import Block, Carry, Noisy
from ..text_layers import ClipLayers, T5Layers
from ..vae_2d import Decode2d
from .base import drawn
from .flux_blocks import FluxBlocks
from .flux_encode import FluxEncode
from .flux_layout import Layout, Shape, Size, guided, join, layout_of, patchified, split, unpatchified


class Flux:
    """The family. See families/base.py."""

    def __init__(self, edge: Edge, components: Components) -> None:
        assert isinstance(edge, FluxEdge), f"the edge of a FluxPipeline, not {type(edge).__name__}"
        self.edge: FluxEdge = edge
        self.solver = make_solver(edge.files.config("scheduler"), components.device)
        transformer = components.model("transformer")
        clip, t5 = ClipLayers(components.model("text_encoder")), T5Layers(components.model("text_encoder_2"))
        self.encode = FluxEncode(clip, t5, transformer, edge.clip_len)
        for blocks in (transformer.transformer_blocks, transformer.single_transformer_blocks):
            bind_linears(blocks)
        self.denoise = _Denoise(transformer)
        self.decode = Decode2d(components.model("vae"))
        self.condition_dtype = self.encode.dtype
        self._scale = edge.limits.multiple // PATCH

    def schedule(self, request: MediaRequest) -> Schedule:
        steps = request.num_inference_steps
        sigmas = np.linspace(1.0, 1 / steps, steps).tolist()
        return self.solver.schedule(steps, sigmas, num_tokens=self.denoise_shape(request).size.num_patches)

    def latents_shape(self, request: MediaRequest) -> tuple[int, int, int, int]:
        return self.denoise.channels, 1, request.height // self._scale, request.width // self._scale

    def noise(self, request: MediaRequest) -> Tensor:
        return drawn(self.latents_shape(request), request.seed)

    def prompts(self, request: MediaRequest) -> Sequence[tuple[int, ...]]:
        """CLIP's ids are all equally long, so that T5's can follow them."""
        branches = [request.token_ids]
        if self.edge.is_guided(request.guidance_scale):
            branches.append(request.negative_token_ids)
        return [(*ids["clip"], *ids["t5"]) for ids in branches]

    def num_padding(self, request: MediaRequest) -> tuple[int, ...]:
        return (0,) * len(self.prompts(request))

    def condition_shape(self, num_tokens: int) -> tuple[int, int]:
        return self.encode.condition_len(num_tokens), self.encode.dim

    def denoise_shape(self, request: MediaRequest) -> Shape:
        _, _, height, width = self.latents_shape(request)
        text_lens = tuple(len(ids) - self.edge.clip_len for ids in self.prompts(request))
        return Shape(Size(height, width), text_lens)


class _Denoise:
    """Blocks: those of diffusers' FluxTransformer2DModel."""

    name = "denoise"

    def __init__(self, model: Any) -> None:
        config = model.config
        if config.patch_size != 1 or config.out_channels not in (None, config.in_channels):
            raise UnsupportedModel("FluxTransformer2DModel: 'patch_size' or 'out_channels' is not that of FLUX.1.")
        if not len(model.transformer_blocks) or not len(model.single_transformer_blocks):
            raise UnsupportedModel("FluxTransformer2DModel: it needs double blocks and single blocks.")
        self._model = model
        self._is_told_guidance: bool = config.guidance_embeds
        self._dtype: torch.dtype = model.x_embedder.weight.dtype
        self._device: torch.device = model.x_embedder.weight.device
        self._dim: int = model.inner_dim
        self._rope_dim: int = sum(config.axes_dims_rope) // 2
        self.channels: int = config.in_channels // PATCH**2
        self._run = FluxBlocks(self._device, self._dtype, config.num_attention_heads)
        self.blocks = lru_cache(maxsize=256)(self._make_blocks)
        self._picture_rope = lru_cache(maxsize=32)(self._make_picture_rope)
        self._indices = lru_cache(maxsize=64)(self._make_indices)
        self._guidance = lru_cache(maxsize=64)(self._make_guidance)

    def batch_key(self, shape: Shape) -> Hashable:
        return ()

    def _make_blocks(self, shape: Shape) -> Sequence[Block]:
        lengths = shape.segment_lens
        work = Work(rows=1, new_tokens=sum(lengths), attended_pairs=sum(n * n for n in lengths), blocks=1)
        first, *others = self._model.single_transformer_blocks
        return (
            *(Block(partial(self._double, block), work, True) for block in self._model.transformer_blocks),
            Block(partial(self._join_and_run, first), work, True),
            *(Block(partial(self._single, block), work, True) for block in others),
        )

    def carried(self, shape: Shape) -> Mapping[str, int]:
        width, rope = self._dim * self._dtype.itemsize, self._rope_dim * torch.complex64.itemsize
        text, segments = sum(shape.text_lens), sum(shape.segment_lens)
        return {
            "x": segments * width,
            "text": text * width,
            "conditioning": len(shape.text_lens) * width,
            "picture_rope": (segments - text) * rope,
            "rope": segments * rope,
            "picture_rows": (segments - text) * torch.int64.itemsize,
            "text_rows": text * torch.int64.itemsize,
            "rows": segments * torch.int64.itemsize,
        }

    # The ends of a step

    def open(self, rows: Sequence[Noisy]) -> Carry:
        shapes = [
            Shape(Size(row.latents.shape[2], row.latents.shape[3]), tuple(len(text) - 1 for text in row.conditions))
            for row in rows
        ]
        layout = layout_of(tuple(shapes))
        conditions = [text for row in rows for text in row.conditions]
        ordered = [conditions[segment.condition] for segment in layout.segments]
        time, pooled = self._time(rows), torch.stack([condition[0] for condition in ordered])
        patches = [patchified(row.latents.to(self._dtype)) for row in rows]
        pictures = self._model.x_embedder(torch.cat(patches)).split([len(part) for part in patches])
        tensors = {
            "x": torch.cat([pictures[segment.row] for segment in layout.segments]),
            "text": torch.cat([condition[1:] for condition in ordered]),
            "conditioning": silu(torch.stack([time[s.row] for s in layout.segments]) + pooled),
            **self._make_ropes(layout),
            **self._indices(layout),
        }
        return Carry(tensors, layout)

    def close(self, carry: Carry, rows: Sequence[Noisy]) -> Sequence[Tensor]:
        layout = _layout(carry)
        _, pictures_TD = split(layout, carry.tensors["x"])
        outputs = self._run.left(self._model, pictures_TD, carry.tensors).float().split(layout.picture_lens)
        predictions = [unpatchified(part, s.size) for part, s in zip(outputs, layout.segments, strict=True)]
        return [
            guided([predictions[place] for place in branches], row.guidance_scale)
            for row, branches in zip(rows, layout.branches, strict=True)
        ]

    # Blocks

    def _double(self, block: Any, carry: Carry) -> None:
        tensors = carry.tensors
        tensors["text"], tensors["x"] = self._run.double(block, _layout(carry), tensors)

    def _join_and_run(self, block: Any, carry: Carry) -> None:
        tensors = carry.tensors
        tensors["x"] = join(_layout(carry), tensors["text"], tensors["x"])
        self._single(block, carry)

    def _single(self, block: Any, carry: Carry) -> None:
        carry.tensors["x"] = self._run.single(block, _layout(carry), carry.tensors)

    # Parts

    def _time(self, rows: Sequence[Noisy]) -> Tensor:
        """[R, D], of timesteps and guidance in the model's own precision, as it was trained."""
        embed = self._model.time_text_embed
        time = torch.stack([row.timestep for row in rows]).to(self._dtype) / 1000
        embedded: Tensor = embed.timestep_embedder(embed.time_proj(time * 1000).to(self._dtype))
        if self._is_told_guidance:
            embedded = embedded + torch.cat([self._guidance(row.guidance_scale) for row in rows])
        return embedded

    def _make_guidance(self, scale: float) -> Tensor:
        """[1, D]. The same in all steps, some fifteen small kernels."""
        embed = self._model.time_text_embed
        guidance = torch.full((1,), scale, device=self._device).to(self._dtype) * 1000
        embedded: Tensor = embed.guidance_embedder(embed.time_proj(guidance).to(self._dtype))
        return embedded

    def _make_picture_rope(self, size: Size) -> Tensor:
        """complex64 [num_patches, F]: texts are at position 0, patches at theirs along two more axes."""
        grid = torch.zeros(size.height // PATCH, size.width // PATCH, 3, device=self._device)
        grid[..., 1] += torch.arange(grid.shape[0], device=self._device)[:, None]
        grid[..., 2] += torch.arange(grid.shape[1], device=self._device)
        cosines, sines = self._model.pos_embed(grid.flatten(0, 1))
        return torch.complex(cosines[:, 0::2].contiguous(), sines[:, 0::2].contiguous())

    def _make_ropes(self, layout: Layout) -> dict[str, Tensor]:
        """[1, L, F] where all segments have the same positions; else of pictures [1, T, F], of segments [B, L, F]."""
        pictures = [self._picture_rope(segment.size) for segment in layout.segments]
        texts = [torch.ones(s.text_len, self._rope_dim, device=self._device) for s in layout.segments]
        if len({(segment.text_len, segment.size) for segment in layout.segments}) == 1:
            return {"picture_rope": pictures[0][None], "rope": torch.cat([texts[0], pictures[0]])[None]}
        segments = torch.cat([part for pair in zip(texts, pictures, strict=True) for part in pair])
        return {"picture_rope": torch.cat(pictures)[None], "rope": segments.unflatten(0, layout.packing.shape)}

    def _make_indices(self, layout: Layout) -> dict[str, Tensor]:
        """The segment of each token, where segments are not equally long."""
        lengths = {"picture_rows": layout.picture_lens, "text_rows": layout.text_lens, "rows": layout.packing.lengths}
        places = range(len(layout.segments))
        return {name: repeated(places, of, self._device) for name, of in lengths.items() if len(set(of)) > 1}


def _layout(carry: Carry) -> Layout:
    layout: Layout = carry.facts
    return layout
