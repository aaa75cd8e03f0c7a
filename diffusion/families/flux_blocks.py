"""The forward of FLUX.1's blocks over the modules of diffusers, on the operations of the device.

A block reads a batch's layout and the tensors of its carry, by name, and gives new ones. Shape suffixes: T tokens of
a stream (texts or pictures of all segments), B and L segments as attention sees them, S segments, D transformer width,
H heads, E head size.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

from ..attention import packed_attention
from ..denoiser_kernels import DenoiserKernels
from .flux_layout import Layout, join, split

EPS = 1e-6
"""Of all norms over the width."""


class FluxBlocks:
    """Holds no weights: blocks come as arguments.

    Tensors: "x" and "text", the streams; "conditioning" [S, D], behind its SiLU; "picture_rope" and "rope", complex64;
    where segments differ in length, the segment of each token: "picture_rows", "text_rows" and "rows".
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, num_heads: int) -> None:
        self._heads = num_heads
        self._kernels = DenoiserKernels.resolve(device, dtype)
        self._attend = packed_attention(device, dtype)

    def double(self, block: Any, layout: Layout, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """A FluxTransformerBlock: both streams, texts first, [T, D]."""
        attention, conditioning = block.attn, tensors["conditioning"]
        picture_parts = block.norm1.linear(conditioning).chunk(6, dim=1)
        text_parts = block.norm1_context.linear(conditioning).chunk(6, dim=1)
        picture_rows, text_rows = tensors.get("picture_rows"), tensors.get("text_rows")
        picture_TD, text_TD = tensors["x"], tensors["text"]

        normed = self._normed(picture_TD, picture_parts[0], picture_parts[1], picture_rows)
        norms = attention.norm_q, attention.norm_k
        pictures = self._projected(
            normed, (attention.to_q, attention.to_k, attention.to_v), norms, tensors["picture_rope"]
        )
        normed = self._normed(text_TD, text_parts[0], text_parts[1], text_rows)
        norms = attention.norm_added_q, attention.norm_added_k
        # Texts are at position 0, which rotates nothing.
        texts = self._projected(normed, (attention.add_q_proj, attention.add_k_proj, attention.add_v_proj), norms, None)

        query, key, value = (join(layout, *pair) for pair in zip(texts, pictures, strict=True))
        text_mixed, picture_mixed = split(layout, self._attend(layout.packing, query, key, value).flatten(2))
        picture_mixed = attention.to_out[0](picture_mixed)
        text_mixed = attention.to_add_out(text_mixed)
        return (
            self._fed_forward(text_TD, text_mixed, block.ff_context, text_parts[2:], text_rows),
            self._fed_forward(picture_TD, picture_mixed, block.ff, picture_parts[2:], picture_rows),
        )

    def single(self, block: Any, layout: Layout, tensors: Mapping[str, Tensor]) -> Tensor:
        """A FluxSingleTransformerBlock over segments [B, L, D]."""
        x_BLD, rope, rows = tensors["x"], tensors["rope"], tensors.get("rows")
        shift, scale, gate = block.norm.linear(tensors["conditioning"]).chunk(3, dim=1)
        normed = self._normed(x_BLD, shift, scale, rows)
        attention = block.attn
        query = self._rotated(attention.to_q(normed).unflatten(-1, (self._heads, -1)), attention.norm_q, rope)
        key = self._rotated(attention.to_k(normed).unflatten(-1, (self._heads, -1)), attention.norm_k, rope)
        value = attention.to_v(normed).unflatten(-1, (self._heads, -1))
        mixed = self._attend(layout.packing, query, key, value).flatten(2)
        update = _out_of_both(block.proj_out, mixed, block.proj_mlp(normed))
        return self._kernels.residual.add(x_BLD, update, gate, rows)

    def left(self, model: Any, pictures_TD: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The model's last norm and projection, over picture tokens."""
        scale, shift = model.norm_out.linear(tensors["conditioning"]).chunk(2, dim=1)
        projected: Tensor = model.proj_out(self._normed(pictures_TD, shift, scale, tensors.get("picture_rows")))
        return projected

    def _normed(self, x: Tensor, shift_SD: Tensor, scale_SD: Tensor, rows: Tensor | None) -> Tensor:
        return self._kernels.norm.layer_norm(x, EPS, scale_SD, shift_SD, rows)

    def _projected(
        self, normed_TD: Tensor, linears: Sequence[Any], norms: Sequence[Any], rope: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a stream [T, H, E]."""
        length = len(normed_TD) if rope is None else rope.shape[1]
        split_heads = -1, length, self._heads, normed_TD.shape[1] // self._heads
        query, key, value = (linear(normed_TD).view(split_heads) for linear in linears)
        query, key = self._rotated(query, norms[0], rope), self._rotated(key, norms[1], rope)
        return query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)

    def _rotated(self, x_BLHE: Tensor, norm: Any, rope: Tensor | None) -> Tensor:
        return self._kernels.heads.rotate(x_BLHE, rope, norm.weight, norm.eps)

    def _fed_forward(
        self, x_TD: Tensor, mixed_TD: Tensor, feed: Any, parts: Sequence[Tensor], rows: Tensor | None
    ) -> Tensor:
        """What attention gave is added, then what the feed-forward makes of that."""
        gate, shift, scale, last_gate = parts
        residual = self._kernels.residual
        x_TD = residual.add(x_TD, mixed_TD, gate, rows)
        grow, _, shrink = feed.net
        grown = gelu(grow.proj(self._normed(x_TD, shift, scale, rows)), approximate="tanh")
        return residual.add(x_TD, shrink(grown), last_gate, rows)


def _out_of_both(linear: Any, mixed: Tensor, grown: Tensor) -> Tensor:
    """A linear layer over [mixed, gelu(grown)]; on CUDA they are not put together in memory first."""
    width = mixed.shape[-1]
    if mixed.is_cuda:
        weight_DK = linear.weight
        update = torch.addmm(linear.bias, mixed.flatten(0, -2), weight_DK[:, :width].t())
        update.addmm_(gelu(grown, approximate="tanh").flatten(0, -2), weight_DK[:, width:].t())
        return update.view(*mixed.shape[:-1], -1)
    both = grown.new_empty(*grown.shape[:-1], width + grown.shape[-1])
    both[..., :width] = mixed
    torch.ops.aten.gelu.out(grown, approximate="tanh", out=both[..., width:])
    result: Tensor = linear(both)
    return result
