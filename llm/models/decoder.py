"""The decoder of Llama, Mistral, Qwen2 and Qwen3, on explicit tensors: what differs between them is `DecoderConfig`.

Fused where it pays: queries, keys and values in one product, gates and ups in one, norms and rotations of queries and
keys at once.
In the last layer only the rows whose logits are wanted go through the output product and the MLP.
Shape suffixes: T tokens, R rows wanted, C hidden size, I intermediate size, V vocabulary, H query heads, K key heads,
D head size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...kernels.activation import GATED_ACTIVATION, GatedActivation
from ...kernels.attention import ScoreOptions
from ...kernels.linear import LINEAR, Linear
from ...kernels.registry import Target
from ...kernels.rms_norm import RMS_NORM, RmsNorm
from ...kernels.rope import ROPE, Rope
from .base import Attend, ModelShape
from .tensors import Tensors


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A decoder of this shape.

    Fields:
        windows: per layer how many keys a query sees; None sees all.
        inverse_frequencies, rope_scale: of the rotary embedding: [head_dim / 2], and the factor of cosines and sines.
        has_qkv_bias, has_out_bias, has_mlp_bias: which projections have biases.
        has_qk_norm: queries and keys are normed per head.
    """

    shape: ModelShape
    intermediate_size: int
    activation: str
    rms_norm_eps: float
    windows: tuple[int | None, ...]
    inverse_frequencies: tuple[float, ...]
    rope_scale: float = 1.0
    has_qkv_bias: bool = False
    has_out_bias: bool = False
    has_mlp_bias: bool = False
    has_qk_norm: bool = False
    is_tied: bool = False


@dataclass(frozen=True, slots=True)
class DecoderKernels:
    """The backends a decoder is built from; `choices` overrides "auto" by operation name."""

    linear: type[Linear]
    rms_norm: type[RmsNorm]
    rope: type[Rope]
    activation: type[GatedActivation]

    @classmethod
    def resolve(cls, target: Target, choices: Mapping[str, str]) -> "DecoderKernels":
        return cls(
            LINEAR.resolve(target, choices.get("linear", "auto")).backend,
            RMS_NORM.resolve(target, choices.get("rms_norm", "auto")).backend,
            ROPE.resolve(target, choices.get("rope", "auto")).backend,
            GATED_ACTIVATION.resolve(target, choices.get("gated_activation", "auto")).backend,
        )


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights, bound to kernels."""

    index: int
    attention_norm: RmsNorm
    qkv: Linear
    qk_norm: Any  # of the rope's backend; None where queries and keys are not normed
    out: Linear
    mlp_norm: RmsNorm
    gate_up: Linear
    down: Linear
    options: ScoreOptions


class Decoder:
    """See `LanguageModel`."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Tensors,
        kernels: DecoderKernels,
        *,
        dtype: torch.dtype,
        has_head: bool = True,
    ) -> None:
        shape = self.shape = config.shape
        self.dtype = dtype
        self.num_blocks = shape.num_layers
        self.is_capturable = True
        self._num_qk = shape.num_heads + shape.num_kv_heads
        prefix = weights.prefix_of("embed_tokens.weight")
        self._embedding_VC = weights.take(f"{prefix}embed_tokens.weight", (shape.vocab_size, shape.hidden_size))
        self._rope = kernels.rope(torch.tensor(config.inverse_frequencies, device=weights.device), config.rope_scale)
        self._activation = kernels.activation(config.activation)
        self._layers = [
            _build_layer(config, weights, kernels, i, f"{prefix}layers.{i}.") for i in range(shape.num_layers)
        ]
        norm = weights.take(f"{prefix}norm.weight", (shape.hidden_size,))
        self._norm = kernels.rms_norm(norm, config.rms_norm_eps)
        self._head = self._build_head(config, weights, kernels) if has_head else None

    def _build_head(self, config: DecoderConfig, weights: Tensors, kernels: DecoderKernels) -> Linear:
        if config.is_tied:
            return kernels.linear(self._embedding_VC)
        return kernels.linear(weights.take("lm_head.weight", (config.shape.vocab_size, config.shape.hidden_size)))

    def forward(self, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, rows_R: Tensor | None) -> Tensor:
        assert self._head is not None, "This model has no language head: it can only encode."
        x_TC = self._embedding_VC.index_select(0, token_ids_T)
        angles = self._rope.at(positions_T, self.dtype)
        normed_TC = self._layers[0].attention_norm(x_TC)
        for layer in self._layers[:-1]:
            mlp_TC = self._run_layer(layer, x_TC, normed_TC, angles, attend)
            normed_TC = self._layers[layer.index + 1].attention_norm.add(x_TC, mlp_TC)
        last = self._layers[-1]
        attended = self._attention(last, normed_TC, angles, attend)
        if rows_R is not None:
            x_TC, attended = x_TC.index_select(0, rows_R), attended.index_select(0, rows_R)
        mlp_RC = self._mlp(last, x_TC, attended)
        return self._head(self._norm.add(x_TC, mlp_RC)).float()

    def encode_block(
        self, block: int, carry_TC: Tensor | None, token_ids_T: Tensor, positions_T: Tensor, attend: Attend, until: int
    ) -> Tensor:
        x_TC = self._embedding_VC.index_select(0, token_ids_T) if carry_TC is None else carry_TC
        if until == 0:
            return x_TC
        layer = self._layers[block]
        angles = self._rope.at(positions_T, self.dtype)
        x_TC = x_TC.add_(self._run_layer(layer, x_TC, layer.attention_norm(x_TC), angles, attend))
        return self._norm(x_TC) if block + 1 == until == self.shape.num_layers else x_TC

    def _run_layer(self, layer: _Layer, x_TC: Tensor, normed_TC: Tensor, angles: Any, attend: Attend) -> Tensor:
        """What the MLP adds to x; the attention's part has been added."""
        return self._mlp(layer, x_TC, self._attention(layer, normed_TC, angles, attend))

    def _attention(self, layer: _Layer, normed_TC: Tensor, angles: Any, attend: Attend) -> Tensor:
        """[T, H * D], before the output product."""
        shape = self.shape
        qkv_TGD = layer.qkv(normed_TC).view(-1, self._num_qk + shape.num_kv_heads, shape.head_dim)
        qk_TGD = qkv_TGD[:, : self._num_qk]
        self._rope.rotate(qk_TGD, angles, layer.qk_norm)
        kv_T2KD = qkv_TGD[:, shape.num_heads :].view(-1, 2, shape.num_kv_heads, shape.head_dim)
        out_THD = attend(layer.index, qkv_TGD[:, : shape.num_heads], kv_T2KD, layer.options)
        return out_THD.view(out_THD.shape[0], -1)

    def _mlp(self, layer: _Layer, x_TC: Tensor, attended: Tensor) -> Tensor:
        normed_TC = layer.mlp_norm.add(x_TC, layer.out(attended))
        return layer.down(self._activation(layer.gate_up(normed_TC)))


def _build_layer(config: DecoderConfig, weights: Tensors, kernels: DecoderKernels, index: int, prefix: str) -> _Layer:
    shape, hidden, intermediate = config.shape, config.shape.hidden_size, config.intermediate_size
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim

    def joint(parts: Mapping[str, int], num_in: int, has_bias: bool) -> Linear:
        names = [f"{prefix}{name}" for name in parts]
        sizes = parts.values()
        weight = [weights.take(f"{name}.weight", (n, num_in)) for name, n in zip(names, sizes, strict=True)]
        bias = [weights.take(f"{name}.bias", (n,)) for name, n in zip(names, sizes, strict=True) if has_bias]
        return kernels.linear(torch.cat(weight), torch.cat(bias) if bias else None)

    def norm(name: str) -> RmsNorm:
        return kernels.rms_norm(weights.take(f"{prefix}{name}.weight", (hidden,)), config.rms_norm_eps)

    qkv_sizes = {"self_attn.q_proj": q_size, "self_attn.k_proj": kv_size, "self_attn.v_proj": kv_size}
    return _Layer(
        index=index,
        attention_norm=norm("input_layernorm"),
        qkv=joint(qkv_sizes, hidden, config.has_qkv_bias),
        qk_norm=_build_qk_norm(config, weights, kernels, prefix) if config.has_qk_norm else None,
        out=joint({"self_attn.o_proj": hidden}, q_size, config.has_out_bias),
        mlp_norm=norm("post_attention_layernorm"),
        gate_up=joint({"mlp.gate_proj": intermediate, "mlp.up_proj": intermediate}, hidden, config.has_mlp_bias),
        down=joint({"mlp.down_proj": hidden}, intermediate, config.has_mlp_bias),
        options=ScoreOptions(shape.head_dim**-0.5, window=config.windows[index]),
    )


def _build_qk_norm(config: DecoderConfig, weights: Tensors, kernels: DecoderKernels, prefix: str) -> Any:
    """One norm for the heads of queries and keys together."""
    shape = config.shape
    q_D, k_D = (weights.take(f"{prefix}self_attn.{name}_norm.weight", (shape.head_dim,)) for name in "qk")
    weight_GD = torch.cat((q_D.expand(shape.num_heads, -1), k_D.expand(shape.num_kv_heads, -1)))
    return kernels.rope.head_norm(weight_GD, config.rms_norm_eps)
