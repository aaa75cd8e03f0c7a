"""A checkpoint of the video trainers becomes a folder that stock diffusers loads and runs."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import WanPipeline

from samples.train.common.checkpoint import forget_origins, save_parts
from samples.train.video.dit import VideoModel
from samples.train.video.export import build_pipeline
from samples.train.video.models import SHAPES
from samples.train.video.text import build_tokenizer


def test_an_exported_checkpoint_runs_in_stock_diffusers_with_the_trained_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    words = {"a": 9, "cat": 3, "jumping": 2}
    model = VideoModel(SHAPES["toy"], len(build_tokenizer(words)))
    weights = {f"average.{n}": torch.randn_like(p).to(torch.bfloat16) for n, p in model.named_parameters()}
    save_parts(tmp_path / "dit", "dit", weights, {"shape": "toy", "words": words})
    SHAPES["toy"].vae().to(torch.bfloat16).save_pretrained(tmp_path / "vae")
    build_pipeline(tmp_path / "vae", tmp_path / "dit").save_pretrained(tmp_path / "model")
    assert str(tmp_path) in (tmp_path / "model" / "vae" / "config.json").read_text()
    forget_origins(tmp_path / "model")
    assert all(str(tmp_path) not in path.read_text() for path in (tmp_path / "model").rglob("*.json"))

    pipe = WanPipeline.from_pretrained(tmp_path / "model").to(torch.float32)
    pipe.set_progress_bar_config(disable=True)
    proj = pipe.transformer.proj_out.weight
    assert torch.equal(proj.to(torch.bfloat16), weights["average.transformer.proj_out.weight"])
    assert pipe.tokenizer("a cat jumping")["input_ids"] == build_tokenizer(words)("a cat jumping")["input_ids"]
    size = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 2}
    frames = pipe("a cat jumping", max_sequence_length=64, output_type="pt", **size).frames
    assert frames.shape == (1, 5, 3, 32, 32) and frames.isfinite().all()
