"""The trained parts as a ZImagePipeline: in memory, as the folder that ships, and as a self-contained folder.

The shipped folder has no text encoder: its hemiola.json names the chat model. The self-contained folder holds a copy of
that model and loads with diffusers alone.
"""

import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL, ZImagePipeline, ZImageTransformer2DModel
from transformers import Qwen3ForCausalLM

from samples.train.image.models import GUIDANCE, STEPS, scheduler
from samples.train.image.text import HIDDEN_STATE, load_tokenizer

CHAT_MODEL = "hemiola-tiny-chat"


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


def save_shipped(pipeline: ZImagePipeline, folder: Path) -> None:
    """The folder that ships: everything but the text encoder's weights, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    pipeline.vae.to(torch.bfloat16).save_pretrained(folder / "vae")
    pipeline.transformer.to(torch.bfloat16).save_pretrained(folder / "transformer")
    pipeline.scheduler.save_pretrained(folder / "scheduler")
    pipeline.tokenizer.save_pretrained(folder / "tokenizer")
    index = {
        "_class_name": "ZImagePipeline",
        "_diffusers_version": pipeline.config["_diffusers_version"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3ForCausalLM"],
        "tokenizer": ["transformers", type(pipeline.tokenizer).__name__],
        "transformer": ["diffusers", "ZImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    declared = {
        "text_encoder": {"shares": CHAT_MODEL, "hidden_state": HIDDEN_STATE},
        "defaults": {"num_inference_steps": STEPS, "guidance_scale": GUIDANCE},
    }
    for name, content in (("model_index.json", index), ("hemiola.json", declared)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
