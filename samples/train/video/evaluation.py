"""Evaluates a trained video pipeline on the committed prompts and draws a filmstrip of the first of them.

The pipeline runs as stock diffusers runs it: 16 solver steps, guidance, max_sequence_length 64, a fixed seed for each
prompt. The guidance scale is chosen on other prompts first. Beside each figure of the model stands the same figure for
real renders, after the model's own autoencoder as well, because the judge errs too.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from diffusers import WanPipeline
from PIL import Image, ImageDraw
from torch import Tensor

from samples.train.scenes.motion import MOTIONS
from samples.train.scenes.objects import THINGS
from samples.train.video.clips import ClipSource, single_scenes
from samples.train.video.export import build_pipeline
from samples.train.video.judge import CLASSES, Judge, Track, load_judge
from samples.train.video.measures import CONSTANT_BELOW, REAL_SEED, background_deviation, motion_of
from samples.train.video.prompts import Prompt, load_prompts, prompts_hash, tuning_prompts

STEPS = 16
MAX_SEQUENCE_LENGTH = 64
GUIDANCE_SCALES = (2.0, 3.0, 4.0, 6.0)
_FILMSTRIP_ROWS, _FILMSTRIP_FRAMES = 24, (0, 3, 6, 10, 13, 16)


@torch.no_grad()
def generate(
    pipe: WanPipeline, prompts: list[Prompt], guidance_scale: float, batch: int = 64, steps: int = STEPS
) -> Tensor:
    """[N, 17, 3, 96, 96] in [0, 1]; the noise of a prompt depends on its own seed only."""
    pipe.set_progress_bar_config(disable=True)
    parts = []
    for first in range(0, len(prompts), batch):
        rows = prompts[first : first + batch]
        generators = [torch.Generator("cpu").manual_seed(row.seed) for row in rows]
        frames = pipe(
            [row.text for row in rows],
            height=96,
            width=96,
            num_frames=17,
            num_inference_steps=steps,
            guidance_scale=guidance_scale,
            generator=generators,
            max_sequence_length=MAX_SEQUENCE_LENGTH,
            output_type="pt",
        ).frames
        parts.append(frames.float())
    return torch.cat(parts)


def half(clips_NTCHW: Tensor, side: int) -> Tensor:
    """The left (0) or right (1) half of each clip, widened with its inner edge so that the judge can look at it."""
    width = clips_NTCHW.shape[-1] // 2
    part = clips_NTCHW[..., side * width : (side + 1) * width]
    edge = part[..., -1:] if side == 0 else part[..., :1]
    pieces = [part, edge.expand(*part.shape[:-1], width)]
    return torch.cat(pieces if side == 0 else pieces[::-1], -1)


def _indices(values: list[int], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device)


def single_figures(
    judge: Judge, clips: Tensor, things: list[int], motions: list[str]
) -> tuple[dict[str, float], Track, Tensor, Tensor]:
    """Shares of clips with the thing, the motion, both, and a constant background; and what was right for each clip."""
    track = judge.track(clips)
    thing_right = track.thing_N == _indices([CLASSES.index(t) for t in things], clips.device)
    motion_right = motion_of(track) == _indices([MOTIONS.index(m) for m in motions], clips.device)
    deviation = background_deviation(clips, track)
    figures = {
        "thing": thing_right.float().mean().item(),
        "motion": motion_right.float().mean().item(),
        "thing_and_motion": (thing_right & motion_right).float().mean().item(),
        "background_constant": (deviation < CONSTANT_BELOW).float().mean().item(),
        "background_deviation": deviation.mean().item(),
    }
    return figures, track, thing_right, motion_right


def pair_figures(judge: Judge, clips: Tensor, things: list[tuple[int, ...]]) -> dict[str, float]:
    """How often the left, the right, and both of two things are recognised in their halves."""
    right = [
        judge.track(half(clips, side)).thing_N == _indices([CLASSES.index(pair[side]) for pair in things], clips.device)
        for side in (0, 1)
    ]
    return {
        "one_thing": torch.cat(right).float().mean().item(),
        "both_things": (right[0] & right[1]).float().mean().item(),
    }


def by_group(right: Tensor, groups: list[str]) -> dict[str, float]:
    """Share of right clips for each group, worst first."""
    table = {}
    for group in set(groups):
        rows = [index for index, name in enumerate(groups) if name == group]
        table[group] = round(right[rows].float().mean().item(), 3)
    return dict(sorted(table.items(), key=lambda item: (item[1], item[0])))


@torch.no_grad()
def control_figures(pipe: WanPipeline, judge: Judge, device: torch.device, count: int) -> dict[str, dict[str, float]]:
    """The same measures on real renders, and on real renders after the model's autoencoder."""
    source = ClipSource(REAL_SEED + 1, device)
    scenes = single_scenes(source, count)
    items = [scene.items[0] for scene in scenes]
    things, motions = [item.thing_id for item in items], [item.motion for item in items]
    real = source.render(scenes).float() / 255
    coded = []
    for part in real.split(32):
        z = pipe.vae.encode(part.transpose(1, 2) * 2 - 1).latent_dist.mode()
        coded.append((pipe.vae.decode(z).sample.transpose(1, 2) + 1) / 2)
    pairs = [scene for scene in source.scenes(count) if len(scene.items) == 2]
    result = {
        "real": single_figures(judge, real, things, motions)[0],
        "real_after_vae": single_figures(judge, torch.cat(coded).clamp(0, 1), things, motions)[0],
    }
    if pairs:
        pair_things = [tuple(item.thing_id for item in scene.items) for scene in pairs]
        result["real"] |= pair_figures(judge, source.render(pairs).float() / 255, pair_things)
    return result


def choose_guidance(pipe: WanPipeline, judge: Judge, prompts: list[Prompt], steps: int) -> tuple[float, dict[str, Any]]:
    """The scale with the best mean of thing and motion on the tuning prompts, and the table."""
    table = {}
    for scale in GUIDANCE_SCALES:
        clips = generate(pipe, prompts, scale, steps=steps)
        table[scale] = single_figures(judge, clips, [p.things[0] for p in prompts], [p.motions[0] for p in prompts])[0]
    best = max(table, key=lambda scale: table[scale]["thing"] + table[scale]["motion"])
    return best, {str(scale): row for scale, row in table.items()}


def draw_filmstrip(clips: Tensor, prompts: list[Prompt], path: Path) -> None:
    """The first prompts of the file in their order, two columns, six frames each."""
    count = min(_FILMSTRIP_ROWS, len(prompts))
    side, gap, line = 96, 2, 12
    columns, width = 2, len(_FILMSTRIP_FRAMES) * (side + gap) + 8
    sheet = Image.new("RGB", (columns * width, (count + columns - 1) // columns * (side + line + 4)), "white")
    draw = ImageDraw.Draw(sheet)
    pixels = (clips[:count].clamp(0, 1) * 255).round().to(torch.uint8).cpu().permute(0, 1, 3, 4, 2).numpy()
    for index in range(count):
        x0, y0 = index % columns * width, index // columns * (side + line + 4)
        draw.text((x0, y0), prompts[index].text[:94], fill="black")
        for position, frame in enumerate(_FILMSTRIP_FRAMES):
            sheet.paste(Image.fromarray(pixels[index, frame]), (x0 + position * (side + gap), y0 + line))
    sheet.save(path)


def evaluate_pipeline(
    pipe: WanPipeline, judge_folder: Path, out: Path, device: torch.device, quick: bool = False
) -> dict[str, Any]:
    """Writes `out`/evaluation.json and `out`/filmstrip.png; returns the figures.

    `quick` tries the code with few prompts and steps.
    """
    start = time.monotonic()
    pipe = pipe.to(device, torch.float32)
    judge, judged = load_judge(judge_folder, device)
    prompts, steps = load_prompts(), 2 if quick else STEPS
    alone, pairs = [p for p in prompts if len(p.things) == 1], [p for p in prompts if len(p.things) == 2]
    tuning = tuning_prompts()
    if quick:
        alone, pairs, tuning = alone[:2], pairs[:1], tuning[:1]
    scale, table = choose_guidance(pipe, judge, tuning, steps)
    clips = generate(pipe, alone, scale, steps=steps)
    things, motions = [p.things[0] for p in alone], [p.motions[0] for p in alone]
    figures, _, thing_right, motion_right = single_figures(judge, clips, things, motions)
    pair_clips = generate(pipe, pairs, scale, steps=steps)
    result = {
        "prompts_sha256": prompts_hash(),
        "prompts_alone": len(alone),
        "prompts_pairs": len(pairs),
        "things": len(set(things)),
        "steps": steps,
        "guidance_scale": scale,
        "max_sequence_length": MAX_SEQUENCE_LENGTH,
        "alone": figures,
        "pairs": pair_figures(judge, pair_clips, [p.things for p in pairs]),
        "controls": control_figures(pipe, judge, device, 4 if quick else 256),
        "judge": judged,
        "by_motion": by_group(motion_right, motions),
        "by_thing": by_group(thing_right, [THINGS[t].name for t in things]),
        "tuning": table,
        "seconds": round(time.monotonic() - start, 1),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "evaluation.json").write_text(json.dumps(result, indent=1))
    draw_filmstrip(clips, alone, out / "filmstrip.png")
    print(json.dumps({k: v for k, v in result.items() if k not in ("by_thing", "tuning")}, indent=1), flush=True)
    return result


def evaluate(vae: Path, dit: Path, judge: Path, out: Path, device: torch.device, quick: bool = False) -> dict[str, Any]:
    """The same for a checkpoint that is not exported yet."""
    return evaluate_pipeline(build_pipeline(vae, dit), judge, out, device, quick)
