"""Tiny random language models in the layout of transformers, made on the spot: no file of the repository is needed.

Weights are larger than an initialisation's, so that an error in any part of a model shows in the logits.
"""

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB_SIZE = 320

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WINDOWED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 9}
_EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}

# Those that the own decoder runs: name -> (config class, what differs).
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama3": (
        "LlamaConfig",
        {
            "head_dim": 16,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": ("MistralConfig", {"head_dim": 16, "sliding_window": 11}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, **_WINDOWED}),
    "qwen3": ("Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3_windows": ("Qwen3Config", {"head_dim": 16, "attention_bias": True, "use_sliding_window": True, **_WINDOWED}),
}

# Those that go the generic way.
GENERIC: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere2": ("Cohere2Config", {"head_dim": 16, **_WINDOWED}),
    "gemma2": ("Gemma2Config", {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 20}),
    "gemma3_text": ("Gemma3TextConfig", {"head_dim": 16, **_WINDOWED}),
    "glm4": ("Glm4Config", {"head_dim": 16, "partial_rotary_factor": 0.5}),
    "gpt2": ("GPT2Config", {}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "gpt_oss": (
        "GptOssConfig",
        {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, **_WINDOWED},
    ),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.2, "logits_scaling": 3.0, "residual_multiplier": 0.5}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "sliding_window": 9}),
    "olmo2": ("Olmo2Config", {}),
    "phi3": ("Phi3Config", {}),
    "qwen3_moe": ("Qwen3MoeConfig", {"head_dim": 16, **_EXPERTS}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1]}),
    "starcoder2": ("Starcoder2Config", {}),
}


def config_of(name: str, **changes: Any) -> Any:
    """The config of a tiny model of `OWN` or `GENERIC`."""
    class_name, extra = {**OWN, **GENERIC}[name]
    return getattr(transformers, class_name)(**{**_COMMON, **extra, **changes})


@torch.no_grad()
def randomise(module: torch.nn.Module, seed: int) -> Any:
    """Every parameter random: matrices about orthogonal in scale, the others around what they were."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
        else:
            parameter.add_(noise * 0.2)
    return module


@functools.cache
def reference(name: str) -> Any:
    """The model as the transformers library runs it, in float32 on the CPU."""
    model = transformers.AutoModelForCausalLM.from_config(
        config_of(name), dtype=torch.float32, attn_implementation="eager"
    )
    return randomise(model, seed=7).eval().requires_grad_(False)


@functools.cache
def folder_of(name: str) -> Path:
    """A folder with the reference's config and weights."""
    folder = Path(tempfile.mkdtemp(prefix=f"tiny-{name}-"))
    reference(name).save_pretrained(folder)
    return folder


def token_ids(count: int, seed: int = 0) -> list[int]:
    """Random tokens, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(3, VOCAB_SIZE, (count,), generator=generator).tolist()
    return ids


@torch.no_grad()
def reference_logits(name: str, ids: list[int]) -> torch.Tensor:
    """[T, V]."""
    logits: torch.Tensor = reference(name)(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits


@torch.no_grad()
def reference_greedy(name: str, ids: list[int], count: int) -> list[int]:
    """`count` greedy tokens after the prompt."""
    model = reference(name)
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "eos_token_id": None}
    generated = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), pad_token_id=0, **options)
    new: list[int] = generated[0, len(ids) :].tolist()
    return new
