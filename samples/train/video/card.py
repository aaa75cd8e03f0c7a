"""Writes the model card: `python -m samples.train.video.card --model FOLDER --vae DIR --dit DIR`.

`--vae` holds vae.json; `--dit` holds evaluation.json, filmstrip.png and the checkpoint with its record. The time of a
clip is measured here, on one CPU thread, with plain diffusers. Every figure of the card comes from these files or from
that measurement; a bar that is missed says so.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from diffusers import WanPipeline
from PIL import Image

from samples.train.common.checkpoint import load_parts

_HEAD = """---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-video
---
# hemiola-tiny-video

A text-to-video model of {size:.1f} MB for demonstrations and tests: 96 x 96 pixels, 17 frames, {things} things,
15 motions, plain, scenic and two-coloured backgrounds. It is a WanPipeline (UMT5 text encoder, Wan transformer, Wan
autoencoder) with weights of its own, trained from nothing by `samples/train/video` in {minutes:.0f} minutes of one
NVIDIA H200 on renders of Noto Color Emoji (Google, SIL OFL 1.1) with generated captions. It knows nothing else: faces,
text, real scenes, other things or other motions are beyond it.

```python
from diffusers import WanPipeline
from PIL import Image
pipe = WanPipeline.from_pretrained("hemiola-tiny-video")
clip = pipe("a cat jumping up and down on the beach", height=96, width=96, num_frames=17, num_inference_steps=16,
            guidance_scale={guidance}, max_sequence_length=64).frames[0]
```
"""


_FIGURES = """
## Figures

{alone} prompts of one thing and {pairs} of two, written and committed before the training
(`samples/train/video/evaluation.jsonl`, SHA-256 `{sha256}`);
one seed each, {solver_steps} steps, guidance {guidance} (chosen on other prompts), max_sequence_length {text_length}.

{table}

The judge is a small network trained on real renders only; on {judged} unseen real clips it names the thing in
{judge_thing} and the motion in {judge_motion}. Spinning things that look the same from every side cannot be told from
still ones, for it or for anybody. A background counts as constant when its pixels, outside the thing, deviate from
their mean over time by less than 0.02 of the range on average.

Worst motions: {worst_motions}.
Worst things: {worst_things}.

PSNR of the 17 frames in dB ({clips} unseen clips): {decibels}.

The first 24 prompts of the file, in its order, frames 0, 3, 6, 10, 13, 16 (not picked):

![filmstrip](filmstrip.png)

## Training

`samples/train/README.md` has the commands. Denoiser and text encoder: {steps} steps of 128 clips, Muon and AdamW;
autoencoder: single frames first, then clips. Seeds are fixed, but bit-equal repetition is not promised: the number of
steps follows the clock, and bfloat16 sums vary. One step in ten each is on clips of 96x96x9 and of 64x64x17; other
sizes run, unproven.
"""


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def bar(value: float, least: float) -> str:
    return "met" if value >= least else "missed"


def table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def figures_table(evaluation: dict[str, Any], vae: dict[str, Any], clip_s: float) -> str:
    alone, real, coded = evaluation["alone"], evaluation["controls"]["real"], evaluation["controls"]["real_after_vae"]
    quality, pairs = vae["psnr_96x96x17"], evaluation["pairs"]
    lowest = min(quality["per_frame"])
    rows = [
        table_row("what", "model", "real renders", "real renders after the autoencoder", "wanted"),
        "|---|---|---|---|---|",
    ]
    shares = (
        ("thing", "thing recognised", f">= 75 %: {bar(alone['thing'], 0.75)}"),
        ("motion", "motion right, by tracking", f">= 90 %: {bar(alone['motion'], 0.9)}"),
        ("thing_and_motion", "both", ""),
        ("background_constant", "background constant", ""),
    )
    rows += [table_row(name, *(percent(f[key]) for f in (alone, real, coded)), wanted) for key, name, wanted in shares]
    both = "both_things"
    return "\n".join(
        [
            *rows,
            table_row("two things, both recognised", percent(pairs[both]), percent(real[both]), "", ""),
            table_row("autoencoder PSNR", f"{quality['mean']:.1f} dB", "", "", f">= 28 dB: {bar(quality['mean'], 28)}"),
            table_row("its worst frame position", f"{lowest:.1f} dB", "", "", f">= 28 dB: {bar(lowest, 28)}"),
            table_row("a clip on one CPU thread", f"{clip_s:.1f} s", "", "", f"<= 5 s: {bar(-clip_s, -5)}"),
        ]
    )


def worst(table: dict[str, float], count: int) -> str:
    return ", ".join(f"{name} {percent(share)}" for name, share in list(table.items())[:count])


def card(evaluation: dict[str, Any], vae: dict[str, Any], record: dict[str, Any], size_mb: float, clip_s: float) -> str:
    minutes = (vae["seconds"] + record["seconds"]) / 60
    head = _HEAD.format(
        size=size_mb, things=evaluation["things"], minutes=minutes, guidance=evaluation["guidance_scale"]
    )
    return head + _FIGURES.format(
        alone=evaluation["prompts_alone"],
        pairs=evaluation["prompts_pairs"],
        sha256=evaluation["prompts_sha256"],
        solver_steps=evaluation["steps"],
        guidance=evaluation["guidance_scale"],
        text_length=evaluation["max_sequence_length"],
        table=figures_table(evaluation, vae, clip_s),
        judged=evaluation["judge"]["clips"],
        judge_thing=percent(evaluation["judge"]["thing_in_a_clip"]),
        judge_motion=percent(evaluation["judge"]["motion"]),
        worst_motions=worst(evaluation["by_motion"], 4),
        worst_things=worst(evaluation["by_thing"], 10),
        decibels=", ".join(f"{value:.1f}" for value in vae["psnr_96x96x17"]["per_frame"]),
        clips=vae["psnr_96x96x17"]["clips"],
        steps=record["steps"],
    )


def clip_seconds(folder: Path, guidance_scale: float) -> float:
    """Seconds of the second of two clips on one thread."""
    torch.set_num_threads(1)
    pipe = WanPipeline.from_pretrained(folder)
    pipe.to(torch.float32)
    pipe.set_progress_bar_config(disable=True)
    for _ in range(2):
        start = time.monotonic()
        size = {"height": 96, "width": 96, "num_frames": 17, "num_inference_steps": 16}
        pipe("a cat spinning clockwise", guidance_scale=guidance_scale, max_sequence_length=64, **size)
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--vae", type=Path, required=True)
    parser.add_argument("--dit", type=Path, required=True)
    options = parser.parse_args()
    evaluation = json.loads((options.dit / "evaluation.json").read_text())
    vae = json.loads((options.vae / "vae.json").read_text())
    _, record = load_parts(options.dit, "dit")
    size_mb = (
        sum(path.stat().st_size for path in options.model.rglob("*.*") if path.suffix in (".safetensors", ".json"))
        / 1e6
    )
    clip_s = clip_seconds(options.model, evaluation["guidance_scale"])
    (options.model / "README.md").write_text(card(evaluation, vae, record, size_mb, clip_s))
    strip = Image.open(options.dit / "filmstrip.png").convert("RGB").quantize(256)
    strip.save(options.model / "filmstrip.png", optimize=True)  # small: it ships
    print(f"{options.model / 'README.md'}: {size_mb:.2f} MB, {clip_s:.2f} s a clip", flush=True)


if __name__ == "__main__":
    main()
