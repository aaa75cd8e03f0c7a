"""Tiny random pipelines in the layout of diffusers, made on the spot: no file of the repository is needed.

Weights are larger than an initialisation's, so that an error in any part of a model shows in the pixels.
"""

import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    UniPCMultistepScheduler,
    WanPipeline,
    WanTransformer3DModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3Model,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
    UMT5Config,
    UMT5EncoderModel,
)

CHAT_TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)


def byte_alphabet() -> list[str]:
    """The 256 printable characters that stand for bytes in byte-level tokenizers."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [chr(256 + i) for i in range(256 - len(kept))]
    return [chr(c) for c in kept] + others


def tiny_clip_tokenizer(max_len: int) -> Any:
    """Byte by byte, but for two pairs; the end token has the highest id, as CLIP's has."""
    letters = byte_alphabet()
    merges = [("e", "d</w>"), ("f", "o")]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(pair) for pair in merges)]
    vocab = {token: i for i, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=max_len)


def tiny_qwen_tokenizer() -> Any:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab = {token: i for i, token in enumerate([*special, *byte_alphabet(), "ed", "er", "an"])}
    merges = [("e", "d"), ("e", "r"), ("a", "n")]
    tokenizer = Qwen2Tokenizer(
        vocab=vocab, merges=merges, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_t5_tokenizer() -> Any:
    pieces = ["<pad>", "</s>", "<unk>", "▁", "▁a", *"abcdefghijklmnopqrstuvwxyz.,0123456789"]
    return T5Tokenizer(vocab=[(piece, -float(i)) for i, piece in enumerate(pieces)], extra_ids=0)


@torch.no_grad()
def randomise(module: torch.nn.Module, seed: int) -> Any:
    """Every parameter random: matrices about orthogonal in scale, the others around what they were."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1 and parameter[0].numel() > 1:
            parameter.copy_(noise / parameter[0].numel() ** 0.5)
        else:
            parameter.add_(0.1 * noise)
    return module.eval()


def _tiny_picture_vae(*, force_upcast: bool) -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=(8, 16, 16), layers_per_block=1, latent_channels=4, norm_num_groups=4, sample_size=32,
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
        mid_block_add_attention=True, use_quant_conv=False, use_post_quant_conv=False, force_upcast=force_upcast,
        scaling_factor=0.4, shift_factor=0.2,
    )  # fmt: skip


def tiny_zimage(seed: int = 0, **transformer: Any) -> ZImagePipeline:
    torch.manual_seed(seed)
    config: dict[str, Any] = {
        "in_channels": 4, "dim": 48, "n_layers": 3, "n_refiner_layers": 2, "n_heads": 3, "n_kv_heads": 3,
        "cap_feat_dim": 32, "axes_dims": [4, 6, 6], "axes_lens": [128, 16, 16], "rope_theta": 256.0, "t_scale": 1000.0,
    }  # fmt: skip
    vae = _tiny_picture_vae(force_upcast=False)
    encoder = Qwen3Model(Qwen3Config(
        vocab_size=264, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=512, tie_word_embeddings=True,
    ))  # fmt: skip
    return ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=2.0),
        vae=randomise(vae, seed + 1),
        text_encoder=randomise(encoder, seed + 2),
        tokenizer=tiny_qwen_tokenizer(),
        transformer=randomise(ZImageTransformer2DModel(**{**config, **transformer}), seed + 3),
    )


def tiny_wan(seed: int = 0, **transformer: Any) -> WanPipeline:
    torch.manual_seed(seed)
    config: dict[str, Any] = {
        "patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4,
        "out_channels": 4, "text_dim": 24, "freq_dim": 16, "ffn_dim": 40, "num_layers": 3, "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 32,
    }  # fmt: skip
    vae = AutoencoderKLWan(
        base_dim=4, z_dim=4, dim_mult=[1, 2, 2, 2], num_res_blocks=1, temperal_downsample=[False, True, True],
        latents_mean=[0.1, -0.2, 0.3, 0.0], latents_std=[1.1, 0.8, 1.3, 0.9],
    )  # fmt: skip
    encoder = UMT5EncoderModel(UMT5Config(
        vocab_size=48, d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
    ))  # fmt: skip
    return WanPipeline(
        tokenizer=tiny_t5_tokenizer(),
        text_encoder=randomise(encoder, seed + 1),
        vae=randomise(vae, seed + 2),
        scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        transformer=randomise(WanTransformer3DModel(**{**config, **transformer}), seed + 3),
    )


def tiny_flux(seed: int = 0, **transformer: Any) -> FluxPipeline:
    torch.manual_seed(seed)
    config: dict[str, Any] = {
        "in_channels": 16, "num_layers": 2, "num_single_layers": 3, "attention_head_dim": 12, "num_attention_heads": 2,
        "joint_attention_dim": 24, "pooled_projection_dim": 16, "guidance_embeds": True, "axes_dims_rope": (4, 4, 4),
    }  # fmt: skip
    vae = _tiny_picture_vae(force_upcast=True)
    tokenizer = tiny_clip_tokenizer(max_len=16)
    clip = CLIPTextModel(CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, hidden_act="quick_gelu", projection_dim=16, eos_token_id=2,
    ))  # fmt: skip
    t5 = T5EncoderModel(T5Config(
        vocab_size=48, d_model=24, d_kv=8, d_ff=32, num_layers=3, num_heads=3, feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
    ))  # fmt: skip
    is_dev = transformer.get("guidance_embeds", True)
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0 if is_dev else 1.0, use_dynamic_shifting=is_dev),
        vae=randomise(vae, seed + 1),
        text_encoder=randomise(clip, seed + 2),
        tokenizer=tokenizer,
        text_encoder_2=randomise(t5, seed + 3),
        tokenizer_2=tiny_t5_tokenizer(),
        transformer=randomise(FluxTransformer2DModel(**{**config, **transformer}), seed + 4),
    )


FAMILIES = ("zimage", "wan", "flux")
"""Of `tiny_pipeline_dir`, one for each family: what tests of all families go through."""


@functools.cache
def tiny_pipeline_dir(name: str) -> Path:
    """A folder with a tiny pipeline, made once a test run: one of `FAMILIES`, or `schnell`, FLUX.1 without guidance."""
    folder = Path(tempfile.mkdtemp(prefix=f"hemiola-tiny-{name}-"))
    make: dict[str, Callable[[], Any]] = {
        "zimage": tiny_zimage,
        "wan": tiny_wan,
        "flux": tiny_flux,
        "schnell": lambda: tiny_flux(guidance_embeds=False),
    }
    make[name]().save_pretrained(folder)
    if name in ("flux", "schnell"):
        (folder / "hemiola.json").write_text(json.dumps({"defaults": {"max_sequence_length": 24}}))
    return folder


@functools.cache
def tiny_shared_encoder_dirs() -> tuple[Path, Path]:
    """The tiny Z-Image without a text encoder of its own, and the language model beside it that serves as one."""
    root = Path(tempfile.mkdtemp(prefix="hemiola-tiny-shared-"))
    image, chat = root / "image", root / "chat"
    shutil.copytree(tiny_pipeline_dir("zimage"), image)
    shutil.move(image / "text_encoder", chat)
    for file in (image / "tokenizer").iterdir():
        shutil.copy(file, chat)
    shutil.rmtree(image / "tokenizer")
    index = json.loads((image / "model_index.json").read_text())
    index.update(text_encoder=[None, None], tokenizer=[None, None])
    (image / "model_index.json").write_text(json.dumps(index))
    declared = {"text_encoder": {"shares": "../chat", "hidden_state": -2}, "defaults": {"num_inference_steps": 4}}
    (image / "hemiola.json").write_text(json.dumps(declared))
    return image, chat
