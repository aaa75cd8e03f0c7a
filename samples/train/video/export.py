"""Makes the pipeline folder of a trained model:
`python -m samples.train.video.export --vae DIR --dit DIR --out FOLDER`.

The folder loads with diffusers.WanPipeline.from_pretrained. Weights are bfloat16. hemiola.json beside them has what
diffusers has no place for: the size, length, steps and guidance that the model was made for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan, WanPipeline

from samples.train.common.checkpoint import forget_origins, load_parts
from samples.train.video.models import SHAPES, solver
from samples.train.video.text import build_tokenizer


def build_pipeline(vae_folder: Path, dit_folder: Path) -> WanPipeline:
    """The pipeline with the averaged weights, all in bfloat16."""
    state, record = load_parts(dit_folder, "dit")
    shape, tokenizer = SHAPES[record["shape"]], build_tokenizer(record["words"])
    transformer, text_encoder = shape.transformer(), shape.text_encoder(len(tokenizer))
    for prefix, module in (("average.transformer.", transformer), ("average.text_encoder.", text_encoder)):
        own = dict(module.named_parameters())
        values = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        assert values.keys() == own.keys(), f"{dit_folder}: weights of another shape"
        with torch.no_grad():
            for name, value in values.items():
                own[name].copy_(value)
    return WanPipeline(
        tokenizer=tokenizer,
        text_encoder=text_encoder.to(torch.bfloat16).eval(),
        vae=AutoencoderKLWan.from_pretrained(vae_folder, torch_dtype=torch.bfloat16),
        scheduler=solver(),
        transformer=transformer.to(torch.bfloat16).eval(),
    )


def write_defaults(folder: Path, guidance: float) -> None:
    defaults = {
        "width": 96,
        "height": 96,
        "num_frames": 17,
        "fps": 8,
        "num_inference_steps": 16,
        "guidance_scale": guidance,
        "max_sequence_length": 64,
    }
    text = json.dumps({"defaults": defaults}, indent=2) + "\n"
    (folder / "hemiola.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vae", type=Path, required=True)
    parser.add_argument("--dit", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--guidance", type=float, default=2.0, help="the default that hemiola.json declares")
    options = parser.parse_args()
    build_pipeline(options.vae, options.dit).save_pretrained(options.out)
    forget_origins(options.out)
    write_defaults(options.out, options.guidance)
    size = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    print(f"{options.out}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
