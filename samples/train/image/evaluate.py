"""Measures a trained image model on the committed prompts, as stock diffusers runs it.

    python -m samples.train.image.evaluate FOLDER --text-encoder DIR --judge DIR --out DIR

writes `evaluation.json` and, not picked, the pictures of the first prompts of the file (`grid.png`) and of other sizes
(`sizes.png`). FOLDER is the one that ships; `--vae DIR --dit DIR` stand for it while training. Beside each figure of
the model stands the same figure for real renders of the same scenes, and for those after the model's own autoencoder,
because the judge errs too. `--tune` chooses the guidance scale on other prompts first.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, ZImagePipeline, ZImageTransformer2DModel
from PIL import Image, ImageDraw
from torch import Tensor

from samples.train.common.checkpoint import load_parts
from samples.train.image.judge import Judge, load_judge, look
from samples.train.image.models import GUIDANCE, NATIVE_SIZE, SHAPES, STEPS
from samples.train.image.pictures import PictureSource
from samples.train.image.pipeline import assemble
from samples.train.image.prompts import Prompt, evaluation_prompts, prompts_hash, tuning_prompts
from samples.train.image.scores import score
from samples.train.image.vae import exact, reconstruct

GUIDANCE_SCALES = (1.5, 2.0, 3.0, 4.0, 5.0)
OTHER_SIZES = ((96, 96), (160, 160), (192, 192), (128, 192), (192, 128))
MAX_SEQUENCE_LENGTH = 64
"""Changes nothing in the pictures (captions are cut to their own length), saves work in the text encoder."""


@torch.no_grad()
def generate(
    pipe: ZImagePipeline,
    prompts: list[Prompt],
    guidance: float,
    size: tuple[int, int] = (NATIVE_SIZE, NATIVE_SIZE),
    batch: int = 128,
    steps: int = STEPS,
) -> Tensor:
    """uint8 [N, 3, height, width]; the noise of a prompt depends on its own seed only."""
    parts = []
    for first in range(0, len(prompts), batch):
        rows = prompts[first : first + batch]
        images = pipe(
            [row.text for row in rows],
            height=size[0],
            width=size[1],
            num_inference_steps=steps,
            guidance_scale=guidance,
            generator=[torch.Generator("cpu").manual_seed(row.seed) for row in rows],
            max_sequence_length=MAX_SEQUENCE_LENGTH,
            output_type="pt",
        ).images
        parts.append((images.float() * 255).round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts)


def real_tables(judge: Judge, vae: AutoencoderKL, prompts: list[Prompt], device: torch.device) -> dict[str, Any]:
    """The judge's figures for renders of the prompts' own scenes, before and after the autoencoder."""
    images = PictureSource(0, device).render([prompt.scene for prompt in prompts], NATIVE_SIZE, NATIVE_SIZE)
    return {
        "real": score(prompts, look(judge, images)),
        "real_after_vae": score(prompts, look(judge, reconstruct(exact(vae), images))),
    }


def choose_guidance(pipe: ZImagePipeline, judge: Judge, prompts: list[Prompt], steps: int) -> tuple[float, Any]:
    """The scale with the best mean over the abilities on the tuning prompts, and the table."""
    table = {}
    for scale in GUIDANCE_SCALES:
        row = score(prompts, look(judge, generate(pipe, prompts, scale, steps=steps)))
        table[scale] = {name: value["percent"] for name, value in row.items() if isinstance(value, dict)}
        print(f"guidance {scale}: {table[scale]}", flush=True)
    best = max(table, key=lambda scale: sum(table[scale].values()))
    return best, {str(scale): row for scale, row in table.items()}


def draw_grid(images_N3HW: Tensor, prompts: list[Prompt], columns: int, path: Path) -> None:
    """Pictures in the prompts' order, each with its prompt below."""
    height, width = images_N3HW.shape[2:]
    rows = -(-len(images_N3HW) // columns)
    sheet = Image.new("RGB", (columns * (width + 6), rows * (height + 38)), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (image, prompt) in enumerate(zip(images_N3HW.cpu(), prompts, strict=True)):
        x, y = index % columns * (width + 6), index // columns * (height + 38)
        sheet.paste(Image.fromarray(image.permute(1, 2, 0).numpy()), (x, y))
        letters = width // 6
        for line in range(3):
            draw.text((x, y + height + 11 * line), prompt.text[line * letters : (line + 1) * letters], fill="black")
    sheet.save(path)


def draw_sizes(pipe: ZImagePipeline, prompts: list[Prompt], guidance: float, path: Path, steps: int) -> None:
    """A row of pictures for each other size."""
    strips = []
    for size in OTHER_SIZES:
        images = generate(pipe, prompts, guidance, size, steps=steps)
        strip = Image.new("RGB", (len(prompts) * 198, size[0] + 4), "white")
        for index, image in enumerate(images.cpu()):
            strip.paste(Image.fromarray(image.permute(1, 2, 0).numpy()), (index * 198, 0))
        strips.append(strip)
    sheet = Image.new("RGB", (strips[0].width, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    sheet.save(path)


def load_trained(vae: Path, dit: Path) -> tuple[AutoencoderKL, ZImageTransformer2DModel, dict[str, Any]]:
    """The two trained parts and the record of the denoiser's training."""
    state, record = load_parts(dit, "dit")
    transformer = SHAPES[record["shape"]].transformer(record["text_width"])
    transformer.load_state_dict({name: value.float() for name, value in state.items()})
    return AutoencoderKL.from_pretrained(vae), transformer.eval(), record


def load_folder(folder: Path) -> tuple[AutoencoderKL, ZImageTransformer2DModel]:
    """The two trained parts of the folder that ships."""
    transformer = ZImageTransformer2DModel.from_pretrained(folder, subfolder="transformer")
    return AutoencoderKL.from_pretrained(folder, subfolder="vae"), transformer


def evaluate(
    pipe: ZImagePipeline,
    judge: Judge,
    out: Path,
    guidance: float = GUIDANCE,
    is_tuned: bool = False,
    limit: int | None = None,
    steps: int = STEPS,
) -> dict[str, Any]:
    """Generates, judges and draws; the figures go to `out`/evaluation.json too. `limit` takes the first prompts."""
    out.mkdir(parents=True, exist_ok=True)
    device, result = next(judge.parameters()).device, {}
    if is_tuned:
        guidance, result["guidance table"] = choose_guidance(pipe, judge, tuning_prompts()[:limit], steps)
    prompts = evaluation_prompts()[:limit]
    start = time.monotonic()
    images = generate(pipe, prompts, guidance, steps=steps)
    result |= {
        "prompts": len(prompts),
        "prompts sha256": prompts_hash(),
        "steps": steps,
        "guidance": guidance,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "dtype": str(pipe.transformer.dtype).removeprefix("torch."),
        "seconds for all pictures": round(time.monotonic() - start, 1),
        "model": score(prompts, look(judge, images)),
        **real_tables(judge, pipe.vae, prompts, device),
    }
    draw_grid(images[:64], prompts[:64], 8, out / "grid.png")
    draw_sizes(pipe, prompts[:6], guidance, out / "sizes.png", steps)
    (out / "evaluation.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder that ships")
    parser.add_argument("--vae", type=Path, help="instead of the folder, with --dit")
    parser.add_argument("--dit", type=Path)
    parser.add_argument("--text-encoder", type=Path, required=True, help="folder of the chat model")
    parser.add_argument("--judge", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--guidance", type=float, default=GUIDANCE)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--limit", type=int, help="only the first prompts")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.folder:
        vae, transformer = load_folder(options.folder)
    elif options.vae and options.dit:
        vae, transformer, _ = load_trained(options.vae, options.dit)
    else:
        parser.error("give the folder, or --vae and --dit")
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    pipe = assemble(vae, transformer, options.text_encoder, device, dtype)
    judge = load_judge(options.judge, device)
    result = evaluate(pipe, judge, options.out, options.guidance, options.tune, options.limit, options.steps)
    print(json.dumps(result, indent=1), flush=True)


if __name__ == "__main__":
    main()
