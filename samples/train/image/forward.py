"""ZImageTransformer2DModel over batches in which all pictures have one size and all captions one padded length.

The same numbers as diffusers (`tests/samples/test_image_forward.py`) without lists, masks and complex numbers, so that
a training step can be captured and compiled. Only the order of work differs: projections of one input are one product.

Shape suffixes: N pictures, C latent channels, h x w latent pixels, T picture tokens (padded to a multiple of 32),
L text slots, D width, H heads, d head dimension.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import ZImageTransformer2DModel
from torch import Tensor, nn

from samples.train.image.models import PATCH

TOKEN_MULTIPLE = 32
_KEY = f"{PATCH}-1"


def rms(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x_NTHd: Tensor, cos_Td: Tensor, sin_Td: Tensor) -> Tensor:
    """Rotary embedding over interleaved pairs."""
    even, odd = x_NTHd.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos_Td[:, None], sin_Td[:, None]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    return turned.flatten(-2).to(x_NTHd.dtype)


def attend(attention: Any, x_NTD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    weight = torch.cat([attention.to_q.weight, attention.to_k.weight, attention.to_v.weight])
    q, k, v = F.linear(x_NTD, weight).unflatten(-1, (3, attention.heads, -1)).unbind(2)
    q = rotate(rms(q, attention.norm_q.weight), cos, sin)
    k = rotate(rms(k, attention.norm_k.weight), cos, sin)
    mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    out: Tensor = F.linear(mixed.transpose(1, 2).flatten(2), attention.to_out[0].weight)
    return out


def feed_forward(layer: Any, x_NTD: Tensor) -> Tensor:
    gate, value = F.linear(x_NTD, torch.cat([layer.w1.weight, layer.w3.weight])).chunk(2, -1)
    out: Tensor = F.linear(F.silu(gate) * value, layer.w2.weight)
    return out


def block(b: Any, x: Tensor, cos: Tensor, sin: Tensor, time_ND: Tensor | None = None) -> Tensor:
    """One ZImageTransformerBlock; without time it is a context block."""
    if time_ND is None:
        x = x + rms(attend(b.attention, rms(x, b.attention_norm1.weight), cos, sin), b.attention_norm2.weight)
        return x + rms(feed_forward(b.feed_forward, rms(x, b.ffn_norm1.weight)), b.ffn_norm2.weight)
    scale, gate, ff_scale, ff_gate = b.adaLN_modulation(time_ND).unsqueeze(1).chunk(4, dim=2)
    h = attend(b.attention, rms(x, b.attention_norm1.weight) * (1 + scale), cos, sin)
    x = x + gate.tanh() * rms(h, b.attention_norm2.weight)
    h = feed_forward(b.feed_forward, rms(x, b.ffn_norm1.weight) * (1 + ff_scale))
    out: Tensor = x + ff_gate.tanh() * rms(h, b.ffn_norm2.weight)
    return out


def time_features(model: Any, t_N: Tensor) -> Tensor:
    embedder = model.t_embedder
    half = embedder.frequency_embedding_size // 2
    frequencies = torch.exp(torch.arange(half, device=t_N.device) * (-math.log(10000) / half))
    angles = (t_N * model.t_scale)[:, None] * frequencies
    waves = torch.cat([angles.cos(), angles.sin()], -1)
    features: Tensor = embedder.mlp(waves.to(embedder.mlp[0].weight.dtype))
    return features


class StaticDenoiser(nn.Module):
    """The model's forward for one picture size and one number of text slots."""

    picture_cos: Tensor
    picture_sin: Tensor
    text_cos: Tensor
    text_sin: Tensor

    def __init__(self, model: ZImageTransformer2DModel, height: int, width: int, slots: int) -> None:
        """height, width in latent pixels."""
        super().__init__()
        self.model: Any = model
        self.rows, self.columns, self.slots = height // PATCH, width // PATCH, slots
        self.tokens = self.rows * self.columns
        self.padding = -self.tokens % TOKEN_MULTIPLE
        device = next(model.parameters()).device
        picture = torch.cartesian_prod(torch.arange(1), torch.arange(self.rows), torch.arange(self.columns))
        picture = F.pad(picture + torch.tensor([slots + 1, 0, 0]), (0, 0, 0, self.padding))
        text = F.pad(torch.arange(1, slots + 1)[:, None], (0, 2))
        for name, positions in (("picture", picture), ("text", text)):
            turns = model.rope_embedder(positions.to(device))
            self.register_buffer(f"{name}_cos", turns.real.contiguous(), persistent=False)
            self.register_buffer(f"{name}_sin", turns.imag.contiguous(), persistent=False)

    def forward(self, x_NChw: Tensor, t_N: Tensor, text_NLD: Tensor, lengths_N: Tensor) -> Tensor:
        """The prediction [N, C, h, w]; t = 1 - sigma; text beyond each length is ignored."""
        model, channels = self.model, x_NChw.shape[1]
        time = time_features(model, t_N)
        patches = x_NChw.unflatten(3, (-1, PATCH)).unflatten(2, (-1, PATCH)).permute(0, 2, 4, 3, 5, 1).flatten(3)
        x = model.all_x_embedder[_KEY](patches.flatten(1, 2).to(time.dtype))
        if self.padding:
            x = torch.cat([x, model.x_pad_token.expand(len(x), self.padding, -1)], 1)
        for layer in model.noise_refiner:
            x = block(layer, x, self.picture_cos, self.picture_sin, time)

        norm, project = model.cap_embedder
        text = F.linear(rms(text_NLD.to(time.dtype), norm.weight), project.weight, project.bias)
        is_text = torch.arange(self.slots, device=text.device) < lengths_N[:, None]
        text = torch.where(is_text[..., None], text, model.cap_pad_token)
        for layer in model.context_refiner:
            text = block(layer, text, self.text_cos, self.text_sin)

        x, cos, sin = (torch.cat(pair, axis) for pair, axis in (
            ((x, text), 1), ((self.picture_cos, self.text_cos), 0), ((self.picture_sin, self.text_sin), 0),
        ))  # fmt: skip
        for layer in model.layers:
            x = block(layer, x, cos, sin, time)
        final = model.all_final_layer[_KEY]
        x = final.norm_final(x[:, : self.tokens]) * (1 + final.adaLN_modulation(time))[:, None]
        out: Tensor = (
            final.linear(x).float().unflatten(2, (PATCH, PATCH, channels)).unflatten(1, (self.rows, self.columns))
        )
        return out.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)
