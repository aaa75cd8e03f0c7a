"""The trained parts as a ZImagePipeline: in memory, as the folder that ships, and as a self-contained folder.

The shipped folder has no text encoder: its hemiola.json names the chat model. The self-contained folder holds a copy of
that model and loads with diffusers alone.
"""

import json
from pathlib import Path

import diffusers
import torch
from diffusers import AutoencoderKL, ZImagePipeline, ZImageTransformer2DModel
from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

from samples.train.common.checkpoint import forget_origins
from samples.train.image.models import GUIDANCE, STEPS, scheduler
from samples.train.image.text import HIDDEN_STATE, load_tokenizer

CHAT_MODEL = "hemiola-tiny-chat"
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"
_MACHINE_KEYS = ("backend", "is_local", "local_files_only")
"""What transformers 5 adds to a saved tokenizer's configuration, and older versions do not know."""


def assemble(
    vae: AutoencoderKL,
    transformer: ZImageTransformer2DModel,
    text_encoder_folder: Path,
    device: torch.device,
    dtype: torch.dtype,
) -> ZImagePipeline:
    """A pipeline whose text encoder is the chat model of that folder."""
    pipeline = ZImagePipeline(
        scheduler=scheduler(),
        vae=vae,
        text_encoder=Qwen3ForCausalLM.from_pretrained(text_encoder_folder, dtype=dtype),
        tokenizer=load_tokenizer(text_encoder_folder),
        transformer=transformer,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device, dtype)


def save_shipped(pipeline: ZImagePipeline, folder: Path, guidance: float = GUIDANCE) -> None:
    """The folder that ships: everything but the text encoder's weights, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    pipeline.vae.to(torch.bfloat16).save_pretrained(folder / "vae")
    pipeline.transformer.to(torch.bfloat16).save_pretrained(folder / "transformer")
    forget_origins(folder)
    pipeline.scheduler.save_pretrained(folder / "scheduler")
    _save_tokenizer(pipeline.tokenizer, folder / "tokenizer")
    index = {
        "_class_name": "ZImagePipeline",
        "_diffusers_version": diffusers.__version__,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3ForCausalLM"],
        "tokenizer": ["transformers", _TOKENIZER_CLASS],
        "transformer": ["diffusers", "ZImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    declared = {
        "text_encoder": {"shares": CHAT_MODEL, "hidden_state": HIDDEN_STATE},
        "defaults": {"num_inference_steps": STEPS, "guidance_scale": guidance},
    }
    for name, content in (("model_index.json", index), ("hemiola.json", declared)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def save_self_contained(pipeline: ZImagePipeline, folder: Path, guidance: float = GUIDANCE) -> None:
    """The same with a copy of the chat model: diffusers alone loads it."""
    save_shipped(pipeline, folder, guidance)
    pipeline.text_encoder.to(torch.bfloat16).save_pretrained(folder / "text_encoder")


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in _MACHINE_KEYS}
    path.write_text(json.dumps({**config, "tokenizer_class": _TOKENIZER_CLASS}, indent=2) + "\n")
