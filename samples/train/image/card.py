"""Writes the model card: `python -m samples.train.image.card --model FOLDER --vae DIR --dit DIR --evaluation DIR`.

Every figure comes from vae.json, dit.json and evaluation.json of those folders or from --seconds-per-picture (which
`export --speed` measures); a bar that is missed says so.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from PIL import Image

from samples.train.scenes.objects import THINGS

_BARS = {
    "object": 85,
    "background": 97,
    "colour": 90,
    "count": 90,
    "two objects, both there": 75,
    "left/right, where both are there": 95,
    "above/below, where both are there": 95,
}

_CARD = """---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-image
---
# hemiola-tiny-image

A text-to-image model of {size:.1f} MB for demonstrations and tests: {things} everyday things in the look of emoji,
up to four in a picture, 12 colours, 17 plain backgrounds, 9 sceneries and 5 patterns. It draws 128 x 128 pixels; 96 to
192 pixels a side and non-square sizes were trained too. It is a ZImagePipeline with an autoencoder and a denoiser of
its own, trained from nothing by `samples/train/image`; its text encoder is the frozen chat model `hemiola-tiny-chat`,
whose weights are not repeated here (`hemiola.json` names it).

It was trained on renders of Noto Color Emoji (Google, SIL OFL 1.1) with generated captions and knows nothing else:
people, text, other things, other styles and free sentences are beyond it.

## Figures

{prompts} prompts, written and committed before the final training (`samples/train/image/evaluation.jsonl`, SHA-256
`{sha256}`), one fixed seed each, {steps} solver steps, guidance {guidance}, plain diffusers, {dtype}.
The prompts come from the same grammar as the training captions: the combinations are new, the words are not.

| ability | model, % | bar | real renders, % | real renders after the autoencoder, % | prompts |
|---|---|---|---|---|---|
{table}

The judge is a small network trained on real renders only; the columns for real renders show how far it can be trusted.
Worst ability against its bar: {worst}. Objects missed in at least one of two prompts: {missed}.
{guidance_table}
Autoencoder, PSNR of fresh scenes in dB (mean of pictures; pooled over pictures; worst picture): {psnr}.

A picture takes {seconds} on one CPU thread (float32, {steps} steps, guidance on, plain diffusers).

The first 64 prompts of the file in its order, not picked:

![pictures](grid.png)

The first six at 96x96, 160x160, 192x192, 128x192 (height x width) and 192x128:

![sizes](sizes.png)

## Training

`samples/train/README.md` has the commands. Autoencoder: {vae_steps} steps of {vae_batch}. Denoiser: {dit_steps} steps
of up to 256 pictures in {dit_minutes:.1f} minutes of one {device}. Seeds are fixed, but bit-equal repetition is not
promised: the number of steps follows the clock, and bfloat16 sums vary.
"""


def _row(name: str, evaluation: dict[str, Any]) -> str:
    model, real, coded = (evaluation[key][name] for key in ("model", "real", "real_after_vae"))
    bar = f">= {_BARS[name]}" if name in _BARS else ""
    if name in _BARS and model["percent"] < _BARS[name]:
        bar += ", missed"
    return f"| {name} | {model['percent']} | {bar} | {real['percent']} | {coded['percent']} | {model['n']} |"


def _guidance_table(table: dict[str, dict[str, float]] | None) -> str:
    if not table:
        return ""
    rows = [f"{scale}: {sum(row.values()) / len(row):.1f}" for scale, row in table.items()]
    return f"Guidance was chosen on other prompts (mean of the abilities in %): {', '.join(rows)}.\n"


def write_card(model: Path, vae: Path, dit: Path, evaluation: Path, seconds: str) -> str:
    """The card's text, also written to README.md in the model's folder, beside the pictures."""
    figures = json.loads((evaluation / "evaluation.json").read_text())
    coder = json.loads((vae / "vae.json").read_text())
    runs = json.loads((dit / "dit.json").read_text())["runs"]
    names = [name for name, row in figures["model"].items() if isinstance(row, dict)]
    worst = min(_BARS, key=lambda name: figures["model"][name]["percent"] - _BARS[name])
    text = _CARD.format(
        size=sum(p.stat().st_size for p in model.rglob("*.safetensors")) / 1e6,
        things=len(THINGS),
        prompts=figures["prompts"],
        sha256=figures["prompts sha256"],
        steps=figures["steps"],
        guidance=figures["guidance"],
        dtype=figures["dtype"],
        table="\n".join(_row(name, figures) for name in names),
        worst=f"{worst} ({figures['model'][worst]['percent']} % against {_BARS[worst]} %)",
        missed=", ".join(dict.fromkeys(figures["model"]["objects missed"])) or "none",
        guidance_table=_guidance_table(figures.get("guidance table")),
        psnr="; ".join(f"{s}: {r['mean']:.1f}, {r['pooled']:.1f}, {r['worst']:.1f}" for s, r in coder["psnr"].items()),
        seconds=seconds,
        vae_steps=coder["steps"],
        vae_batch=coder["batch"],
        dit_steps=sum(run["steps"] for run in runs),
        dit_minutes=sum(run["seconds"] for run in runs) / 60,
        device=figures["device"],
    )
    for name in ("grid.png", "sizes.png"):
        Image.open(evaluation / name).convert("RGB").quantize(256).save(model / name, optimize=True)  # small: it ships
    (model / "README.md").write_text(text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--vae", type=Path, required=True)
    parser.add_argument("--dit", type=Path, required=True)
    parser.add_argument("--evaluation", type=Path, required=True)
    parser.add_argument("--seconds-per-picture", default="a time that was not measured")
    o = parser.parse_args()
    print(write_card(o.model, o.vae, o.dit, o.evaluation, o.seconds_per_picture))


if __name__ == "__main__":
    main()
