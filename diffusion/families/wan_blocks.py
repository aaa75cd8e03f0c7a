"""The forward of Wan's blocks over the modules of diffusers, on the operations of the device, in two halves: what a
token takes from all others of its clip, and what it takes from the text and makes of it alone.

A half runs over some guidance branches of a batch. Shape suffixes: R rows of the batch, N guidance branches at hand, L
space-time tokens, T text tokens of the batch, D transformer width, F half the head size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import dense
from ..denoiser_kernels import DenoiserKernels
from ..edge.footprint import FFN_TOKENS
from ..places import Span


@dataclass(frozen=True, slots=True)
class Branch:
    """One guidance branch of one row, where its text lies among the packed ones, and how much padding there was."""

    row: int
    text: Span
    num_padding: int


class WanBlocks:
    """Holds no weights: blocks come as arguments.

    Tensors: "text" [T, D] and "bias" [T], "rope" complex64 [L, F], "modulation" [R, 6, D].
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, num_heads: int, eps: float) -> None:
        self._num_heads = num_heads
        self._eps = eps
        self._kernels = DenoiserKernels.resolve(device, dtype)

    def first_half(
        self, block: Any, x_NLD: Tensor, rows_N: Tensor, branches: Sequence[Branch], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Self-attention."""
        modulation_R3D = block.scale_shift_table[:, :3] + tensors["modulation"][:, :3].float()
        shift, scale, gate = modulation_R3D.unbind(1)
        attention, rope = block.attn1, tensors["rope"]
        normed = self.normed(x_NLD, shift, scale, rows_N)
        query = self._heads(attention.norm_q, attention.to_q(normed), rope)
        key = self._heads(attention.norm_k, attention.to_k(normed), rope)
        mixed = dense(query, key, self._by_head(attention.to_v(normed))).flatten(2)
        return self._kernels.residual.add(x_NLD, attention.to_out[0](mixed), gate, rows_N)

    def second_half(
        self, block: Any, x_NLD: Tensor, rows_N: Tensor, branches: Sequence[Branch], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Cross-attention to the texts and feed-forward."""
        modulation_R3D = block.scale_shift_table[:, 3:] + tensors["modulation"][:, 3:].float()
        shift, scale, gate = modulation_R3D.unbind(1)
        residual, normed = self._kernels.residual, x_NLD
        if isinstance(block.norm2, nn.LayerNorm):  # else the identity: the model does without
            affine = block.norm2
            normed = self._kernels.norm.layer_norm(x_NLD, affine.eps, weight=affine.weight, bias=affine.bias)
        x_NLD = residual.add(x_NLD, self._cross_attention(block.attn2, normed, branches, tensors))
        return residual.add(x_NLD, _fed_forward(block.ffn, self.normed(x_NLD, shift, scale, rows_N)), gate, rows_N)

    def normed(self, x_NLD: Tensor, shift_RD: Tensor, scale_RD: Tensor, rows_N: Tensor) -> Tensor:
        return self._kernels.norm.layer_norm(x_NLD, self._eps, scale_RD, shift_RD, rows_N)

    def _cross_attention(
        self, attention: Any, x_NLD: Tensor, branches: Sequence[Branch], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        text_TD, bias_T = tensors["text"], tensors["bias"]
        query = self._heads(attention.norm_q, attention.to_q(x_NLD))
        key = self._heads(attention.norm_k, attention.to_k(text_TD.unsqueeze(0)))[0]
        value = self._by_head(attention.to_v(text_TD))
        mixed = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        for place, branch in enumerate(branches):
            text = branch.text.slice
            # A tensor of its own: kernels want its start at a multiple of 16 bytes.
            bias = bias_T[text].clone().expand(1, 1, query.shape[1], -1)
            mixed[place] = dense(query[place, None], key[None, text], value[None, text], bias)[0]
        return attention.to_out[0](mixed.flatten(2))  # type: ignore[no-any-return]

    def _by_head(self, x: Tensor) -> Tensor:
        split: Tensor = x.unflatten(-1, (self._num_heads, -1))
        return split

    def _heads(self, norm: nn.RMSNorm, x_NLD: Tensor, rope_LF: Tensor | None = None) -> Tensor:
        """Queries or keys by head, all heads of a token normed together."""
        rope_NLF = None if rope_LF is None else rope_LF.unsqueeze(0)
        assert norm.eps is not None, "diffusers gives it"
        return self._kernels.heads.rotate(self._by_head(x_NLD), rope_NLF, norm.weight, norm.eps)


def _fed_forward(ffn: nn.Module, x_NLD: Tensor) -> Tensor:
    """Of some tokens at a time where there are many: its hidden layer is several times as wide as a token."""
    num_branches, num_tokens, _ = x_NLD.shape
    num_parts = -(-num_branches * num_tokens // FFN_TOKENS)
    if num_parts <= 1 or not _is_spared(x_NLD):
        return ffn(x_NLD)  # type: ignore[no-any-return]
    y_NLD = torch.empty_like(x_NLD)
    for part, into in zip(x_NLD.chunk(num_parts, dim=1), y_NLD.chunk(num_parts, dim=1), strict=True):
        into.copy_(ffn(part))
    return y_NLD


def _is_spared(x: Tensor) -> bool:
    """Whether memory counts more than one call: not on a CPU."""
    return x.device.type != "cpu"
