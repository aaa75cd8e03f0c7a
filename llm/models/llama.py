"""Llama, Mistral, Qwen2 and Qwen3: their configs as a `DecoderConfig`."""

from typing import Any

from ...kernels.activation import KINDS
from .base import ModelShape
from .decoder import DecoderConfig
from .rope import FIXED_TYPES, inverse_frequencies, rope_type


def why_not(config: Any) -> str | None:
    """Why the own decoder does not run a config of one of these types, or None if it does."""
    if config.hidden_act not in KINDS:
        return f"activation '{config.hidden_act}'"
    if rope_type(config) not in FIXED_TYPES:
        return f"rotary embedding of type '{rope_type(config)}'"
    if (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0) != 1.0:
        return "partial rotary embedding"
    return None


def llama(config: Any) -> DecoderConfig:
    return _decoder(
        config,
        has_qkv_bias=config.attention_bias,
        has_out_bias=config.attention_bias,
        has_mlp_bias=config.mlp_bias,
    )


def mistral(config: Any) -> DecoderConfig:
    return _decoder(config, windows=(config.sliding_window,) * config.num_hidden_layers)


def qwen2(config: Any) -> DecoderConfig:
    return _decoder(config, has_qkv_bias=True, windows=_windows(config))


def qwen3(config: Any) -> DecoderConfig:
    return _decoder(
        config,
        has_qkv_bias=config.attention_bias,
        has_out_bias=config.attention_bias,
        has_qk_norm=True,
        windows=_windows(config),
    )


def _windows(config: Any) -> tuple[int | None, ...]:
    return tuple(config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types)


def _decoder(config: Any, *, windows: tuple[int | None, ...] = (), **parts: bool) -> DecoderConfig:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    frequencies, scale = inverse_frequencies(config, head_dim)
    shape = ModelShape(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        max_len=config.max_position_embeddings,
        attention_needs=frozenset({"window"}) if any(windows) else frozenset(),
    )
    return DecoderConfig(
        shape=shape,
        intermediate_size=config.intermediate_size,
        activation=config.hidden_act,
        rms_norm_eps=config.rms_norm_eps,
        windows=windows or (None,) * shape.num_layers,
        inverse_frequencies=frequencies,
        rope_scale=scale,
        is_tied=config.tie_word_embeddings,
        **parts,
    )
