"""Qwen3 for training: the weights and names of transformers' Qwen3ForCausalLM, packed rows, loss at chosen positions.

Weights are fp32; activations are in `dtype`. Attention stays inside a document. Shapes: B rows, T positions, D hidden,
H query heads, K key heads, d head size, N chosen positions. A test holds it against transformers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128


@dataclass(frozen=True)
class Config:
    """Sizes of the model, under transformers' names."""

    vocab_size: int = 6144
    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 1024
    max_position_embeddings: int = 4096
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rotate(x_BHTd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
    """Rotary embedding with the halves convention."""
    low, high = x_BHTd.chunk(2, dim=-1)
    return (x_BHTd * cos_Td + torch.cat((-high, low), dim=-1) * sin_Td).to(x_BHTd.dtype)


def block_lists(document_BT: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which blocks of 128 meet inside documents: key blocks of each query block, query blocks of each key block.

    Counts int32 [B, 1, T / 128] and indices int32 [B, 1, T / 128, T / 128], each of both. A query block sees the key
    blocks from the one in which the document of its first position starts. Document numbers grow along a row. Run this
    eagerly, outside of what is compiled. T must be a multiple of 128.
    """
    starts = torch.searchsorted(document_BT.contiguous(), document_BT[:, ::BLOCK].contiguous())
    firsts = (starts // BLOCK)[:, None].to(torch.int32)
    num_blocks = firsts.shape[-1]
    own = torch.arange(num_blocks, device=document_BT.device, dtype=torch.int32)
    indices = (firsts[..., None] + own).clamp(max=num_blocks - 1)
    mask = BlockMask.from_kv_blocks(own - firsts + 1, indices, BLOCK_SIZE=BLOCK)
    assert mask.q_num_blocks is not None and mask.q_indices is not None
    lists = (mask.kv_num_blocks, mask.kv_indices, mask.q_num_blocks, mask.q_indices)
    counts, kv, q_counts, q = (part.contiguous() for part in lists)
    return counts, kv, q_counts, q


def block_mask(document_BT: Tensor, lists: Sequence[Tensor]) -> BlockMask:
    """Causal attention inside documents; `lists` as `block_lists` gives them."""

    def inside(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & (document_BT[b, q] == document_BT[b, k])

    T = document_BT.shape[1]
    return BlockMask(
        seq_lengths=(T, T),
        kv_num_blocks=lists[0],
        kv_indices=lists[1],
        full_kv_num_blocks=None,
        full_kv_indices=None,
        q_num_blocks=lists[2],
        q_indices=lists[3],
        full_q_num_blocks=None,
        full_q_indices=None,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=inside,
    )


class Attention(nn.Module):
    """Grouped-query attention with norms on queries and keys."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        d, D = config.head_dim, config.hidden_size
        self.q_proj = nn.Linear(D, config.num_attention_heads * d, bias=False)
        self.k_proj = nn.Linear(D, config.num_key_value_heads * d, bias=False)
        self.v_proj = nn.Linear(D, config.num_key_value_heads * d, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * d, D, bias=False)
        self.q_norm = nn.Parameter(torch.ones(d))
        self.k_norm = nn.Parameter(torch.ones(d))

    def forward(self, x_BTD: Tensor, cos: Tensor, sin: Tensor, mask: BlockMask | Tensor) -> Tensor:
        B, T, _ = x_BTD.shape
        c = self.config
        weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight)).to(x_BTD.dtype)
        heads = F.linear(x_BTD, weight).view(B, T, -1, c.head_dim).transpose(1, 2)
        q, k, v = heads.split((c.num_attention_heads, c.num_key_value_heads, c.num_key_value_heads), dim=1)
        q = rotate(rms_norm(q, self.q_norm, c.rms_norm_eps), cos, sin)
        k = rotate(rms_norm(k, self.k_norm, c.rms_norm_eps), cos, sin)
        if isinstance(mask, BlockMask):
            out = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        else:
            # keys and values spelt out: with enable_gqa and a mask CUDA would build all scores in memory
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert isinstance(out, Tensor)
        return F.linear(out.transpose(1, 2).reshape(B, T, -1), self.o_proj.weight.to(x_BTD.dtype))


class Mlp(nn.Module):
    """Gated feed-forward network."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        both = F.linear(x_BTD, torch.cat((self.gate_proj.weight, self.up_proj.weight)).to(x_BTD.dtype))
        gate, up = both.chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down_proj.weight.to(x_BTD.dtype))


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.eps = config.rms_norm_eps
        self.self_attn, self.mlp = Attention(config), Mlp(config)
        self.input_layernorm = nn.Parameter(torch.ones(config.hidden_size))
        self.post_attention_layernorm = nn.Parameter(torch.ones(config.hidden_size))

    def forward(self, x_BTD: Tensor, cos: Tensor, sin: Tensor, mask: BlockMask | Tensor) -> Tensor:
        x_BTD = x_BTD + self.self_attn(rms_norm(x_BTD, self.input_layernorm, self.eps), cos, sin, mask)
        out: Tensor = x_BTD + self.mlp(rms_norm(x_BTD, self.post_attention_layernorm, self.eps))
        return out


class ChatModel(nn.Module):
    """Token ids and document numbers of packed rows -> loss at chosen positions."""

    def __init__(self, config: Config, dtype: torch.dtype, use_flex: bool) -> None:
        super().__init__()
        self.config, self.dtype, self.use_flex = config, dtype, use_flex
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(config.hidden_size))
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, Attention | Mlp):
            for name, child in module.named_children():
                assert isinstance(child, nn.Linear)
                is_last = name in ("o_proj", "down_proj")
                shrink = 1 / math.sqrt(2 * self.config.num_hidden_layers) if is_last else 1.0
                nn.init.normal_(child.weight, std=shrink / math.sqrt(child.in_features))

    def hidden(self, ids_BT: Tensor, document_BT: Tensor, lists: Sequence[Tensor] = ()) -> Tensor:
        """The normed last hidden states [B, T, D]. `lists` (see `block_lists`) are needed for flex attention only."""
        c = self.config
        T = ids_BT.shape[1]
        steps = torch.arange(0, c.head_dim, 2, device=ids_BT.device) / c.head_dim
        angles = torch.arange(T, device=ids_BT.device)[:, None] / c.rope_theta ** steps[None]
        both = torch.cat((angles, angles), dim=-1)
        cos, sin = both.cos(), both.sin()
        mask: BlockMask | Tensor
        if self.use_flex:
            mask = block_mask(document_BT, lists)
        else:
            causal = torch.ones(T, T, dtype=torch.bool, device=ids_BT.device).tril()
            mask = (causal & (document_BT[:, :, None] == document_BT[:, None, :]))[:, None]
        x_BTD = F.embedding(ids_BT, self.embed_tokens.weight).to(self.dtype)
        for layer in self.layers:
            x_BTD = layer(x_BTD, cos, sin, mask)
        return rms_norm(x_BTD, self.norm, c.rms_norm_eps)

    def forward(
        self,
        ids_BT: Tensor,
        document_BT: Tensor,
        lists: Sequence[Tensor],
        chosen_N: Tensor,
        targets_N: Tensor,
        weights_N: Tensor,
    ) -> Tensor:
        """Mean loss of predicting `targets` at the flat positions `chosen`; weight 0 marks fillers."""
        x = self.hidden(ids_BT, document_BT, lists).flatten(0, 1)[chosen_N]
        logits = F.linear(x, self.embed_tokens.weight.to(x.dtype)).float()
        losses = F.cross_entropy(logits, targets_N, reduction="none")
        return (losses * weights_N).sum() / weights_N.sum()

    def named_for_transformers(self) -> dict[str, Tensor]:
        """The weights under transformers' names (the head is tied to the embedding)."""
        found = {}
        for name, tensor in self.state_dict().items():
            is_norm = name.endswith("norm")
            found[f"model.{name}" + (".weight" if is_norm else "")] = tensor
        return found
