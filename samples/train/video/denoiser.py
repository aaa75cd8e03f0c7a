"""WanTransformer3DModel and its UMT5 text encoder as plain functions of weight tensors, for fast training.

Same numbers as diffusers and transformers (`tests/samples/test_video_denoiser.py`), with three liberties: weights come
in a dictionary, so that a step can compute in bfloat16 from fp32 masters; a block is one function of tensors, so that
one compiled version serves all blocks; and text padding costs one key instead of hundreds.

Wan attends to zero-padded text without a mask: of `max_sequence_length` T keys, T - len are the same vector. One such
key with log(T - len) added to its score is the same softmax, so T can be drawn at random in training and the model
works with any T that the pipeline is called with.

Shape suffixes: B clips, L latent tokens, S text slots (the last one stands for all padding), H heads, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel
from torch import Tensor
from transformers import UMT5EncoderModel

Weights = Mapping[str, Tensor]
Rope = tuple[Tensor, Tensor]  # cosines and sines, each [L, 1, head dimension / 2]
Block = Callable[[Tensor, Tensor, Tensor, Tensor, Rope, dict[str, Tensor], int], Tensor]


def scoped(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """The entries below `prefix.`, without it."""
    return {name[len(prefix) + 1 :]: w for name, w in weights.items() if name.startswith(prefix + ".")}


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    weight = w[f"{name}.weight"]
    return F.linear(x.to(weight.dtype), weight, w.get(f"{name}.bias"))


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    return F.layer_norm(x.float(), x.shape[-1:], eps=eps)


def rotate(x_BLHd: Tensor, rope: Rope) -> Tensor:
    """Rotary embedding over interleaved pairs."""
    cos, sin = rope
    even, odd = x_BLHd.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def attend_biased(q_BLHd: Tensor, k_BSHd: Tensor, v_BSHd: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Attention with an fp32 softmax over scores + bias (broadcast to [B, H, L, S])."""
    q, k, v = (t.transpose(1, 2) for t in (q_BLHd, k_BSHd, v_BSHd))
    weights = torch.softmax((q @ k.mT).float() * scale + bias, -1).to(v.dtype)
    return (weights @ v).transpose(1, 2).flatten(2)


def wan_block(
    x_BLD: Tensor, text_BSD: Tensor, bias_BS: Tensor, time_B6D: Tensor, rope: Rope, w: dict[str, Tensor], heads: int
) -> Tensor:
    """One WanTransformerBlock; the residual stream stays fp32."""
    shift, scale, gate, ff_shift, ff_scale, ff_gate = (w["scale_shift_table"].float() + time_B6D).chunk(6, 1)
    h = layer_norm(x_BLD) * (1 + scale) + shift
    q, k = (rms(linear(h, w, f"attn1.to_{n}"), w[f"attn1.norm_{n}.weight"], 1e-6) for n in "qk")
    v = linear(h, w, "attn1.to_v").unflatten(-1, (heads, -1))
    q, k = (rotate(t.unflatten(-1, (heads, -1)), rope).to(v.dtype) for t in (q, k))
    mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    x = x_BLD + linear(mixed.transpose(1, 2).flatten(2), w, "attn1.to_out.0") * gate

    h = layer_norm(x) * w["norm2.weight"] + w["norm2.bias"] if "norm2.weight" in w else x
    v = linear(text_BSD, w, "attn2.to_v").unflatten(-1, (heads, -1))
    q = rms(linear(h, w, "attn2.to_q"), w["attn2.norm_q.weight"], 1e-6).to(v.dtype).unflatten(-1, (heads, -1))
    k = rms(linear(text_BSD, w, "attn2.to_k"), w["attn2.norm_k.weight"], 1e-6).to(v.dtype).unflatten(-1, (heads, -1))
    mixed = attend_biased(q, k, v, bias_BS[:, None, None], q.shape[-1] ** -0.5)
    x = x + linear(mixed, w, "attn2.to_out.0")

    h = layer_norm(x) * (1 + ff_scale) + ff_shift
    inner = F.gelu(linear(h, w, "ffn.net.0.proj"), approximate="tanh")
    return x + linear(inner, w, "ffn.net.2") * ff_gate


def rope_tables(model: WanTransformer3DModel, frames: int, height: int, width: int) -> Rope:
    """Rotary tables for a latent of that size, from the model's own buffers."""
    cos, sin = model.rope(torch.empty(1, 1, frames, height, width, device=model.device))
    return cos[0, :, :, 0::2].float(), sin[0, :, :, 1::2].float()


def sinusoids(timestep_B: Tensor, channels: int) -> Tensor:
    """diffusers' Timesteps(flip_sin_to_cos=True, downscale_freq_shift=0)."""
    half = channels // 2
    frequencies = torch.exp(-torch.arange(half, device=timestep_B.device) * (9.210340371976184 / half))  # ln 10000
    angles = timestep_B.float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


def denoise(
    w: Weights,
    model: WanTransformer3DModel,
    x_BCTHW: Tensor,
    timestep_B: Tensor,
    text_BSD: Tensor,
    bias_BS: Tensor,
    rope: Rope,
    block: Block = wan_block,
) -> Tensor:
    """The transformer's velocity [B, C, T, H, W]; `model` lends its configuration only."""
    config = model.config
    _, channels, _, height, width = x_BCTHW.shape
    _, ph, pw = config.patch_size
    time = linear(sinusoids(timestep_B, config.freq_dim), w, "condition_embedder.time_embedder.linear_1")
    time = linear(F.silu(time), w, "condition_embedder.time_embedder.linear_2").float()
    time_B6D = linear(F.silu(time), w, "condition_embedder.time_proj").float().unflatten(1, (6, -1))
    text = F.gelu(linear(text_BSD, w, "condition_embedder.text_embedder.linear_1"), approximate="tanh")
    text = linear(text, w, "condition_embedder.text_embedder.linear_2")

    patches = x_BCTHW.unflatten(4, (-1, pw)).unflatten(3, (-1, ph))  # B C T H ph W pw
    patches = patches.permute(0, 2, 3, 5, 1, 4, 6).flatten(4).flatten(1, 3)
    weight = w["patch_embedding.weight"]
    x = F.linear(patches.to(weight.dtype), weight.flatten(1), w["patch_embedding.bias"]).float()
    for index in range(config.num_layers):
        x = block(x, text, bias_BS, time_B6D, rope, scoped(w, f"blocks.{index}"), config.num_attention_heads)

    shift, scale = (w["scale_shift_table"].float() + time[:, None]).chunk(2, 1)
    out = linear(layer_norm(x) * (1 + scale) + shift, w, "proj_out").float()
    out = out.unflatten(1, (-1, height // ph, width // pw)).unflatten(-1, (ph, pw, channels))
    velocity: Tensor = out.permute(0, 6, 1, 2, 4, 3, 5).flatten(5).flatten(3, 4)
    return velocity


def one_hot(index: Tensor, size: int) -> Tensor:
    """A product with it looks rows up, and its gradient is one matrix product, without atomics or synchronisation."""
    return (index[..., None] == torch.arange(size, device=index.device)).float()


@dataclass(frozen=True)
class TextEncoder:
    """What the UMT5 forward needs besides weights."""

    num_layers: int
    num_heads: int
    eps: float
    buckets_SSN: Tensor  # relative position bucket of (query, key), one-hot

    @classmethod
    def of(cls, model: UMT5EncoderModel, slots: int) -> TextEncoder:
        config, attention = model.config, model.encoder.block[0].layer[0].SelfAttention
        position = torch.arange(slots, device=model.device)
        buckets = attention._relative_position_bucket(position[None, :] - position[:, None])
        table = one_hot(buckets, config.relative_attention_num_buckets)
        return cls(config.num_layers, config.num_heads, config.layer_norm_epsilon, table)

    def __call__(self, w: Weights, ids_BS: Tensor, length_B: Tensor) -> Tensor:
        """Token ids, padded on the right -> hidden states [B, S, D], zero beyond each length."""
        inside_BS = torch.arange(ids_BS.shape[1], device=ids_BS.device) < length_B[:, None]
        mask = torch.zeros(inside_BS.shape, device=ids_BS.device).masked_fill(~inside_BS, -1e9)[:, None, None]
        x = one_hot(ids_BS, len(w["shared.weight"])) @ w["shared.weight"]
        for index in range(self.num_layers):
            x = self._layer(x, mask, scoped(w, f"encoder.block.{index}.layer"))
        return rms(x, w["encoder.final_layer_norm.weight"], self.eps) * inside_BS[..., None]

    def _layer(self, x: Tensor, mask: Tensor, w: Weights) -> Tensor:
        h = rms(x, w["0.layer_norm.weight"], self.eps)
        q, k, v = (linear(h, w, f"0.SelfAttention.{n}").unflatten(-1, (self.num_heads, -1)) for n in "qkv")
        bias = self.buckets_SSN @ w["0.SelfAttention.relative_attention_bias.weight"]
        x = x + linear(attend_biased(q, k, v, bias.permute(2, 0, 1) + mask, 1.0), w, "0.SelfAttention.o")
        h = rms(x, w["1.layer_norm.weight"], self.eps)
        gate = F.gelu(linear(h, w, "1.DenseReluDense.wi_0"), approximate="tanh")
        return x + linear(gate * linear(h, w, "1.DenseReluDense.wi_1"), w, "1.DenseReluDense.wo")


def text_keys(hidden_BSD: Tensor, length_B: Tensor, padded_B: Tensor) -> tuple[Tensor, Tensor]:
    """Adds the slot that stands for all padding: (text [B, S + 1, D], score bias [B, S + 1]).

    `padded_B` is the `max_sequence_length` that each clip is trained for; it must exceed every length.
    """
    text = F.pad(hidden_BSD, (0, 0, 0, 1))
    inside = torch.arange(hidden_BSD.shape[1], device=hidden_BSD.device) < length_B[:, None]
    bias = torch.zeros(inside.shape, device=hidden_BSD.device).masked_fill(~inside, -1e9)
    return text, torch.cat([bias, (padded_B - length_B).float().log()[:, None]], 1)
