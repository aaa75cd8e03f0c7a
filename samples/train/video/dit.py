"""Trains the video denoiser and its text encoder:
`python -m samples.train.video.dit --vae DIR --out DIR --seconds 500`.

Flow matching on latents that are encoded once: x_t = (1 - s) x_0 + s noise, the model predicts noise - x_0. The text
encoder starts from nothing and learns with the denoiser. A step draws its batch, its noise and its text padding on the
device and is one CUDA graph for each clip format. Several calls make one schedule with --schedule-start and
--schedule-end. `DIR/dit-*.safetensors` holds the averaged weights in bfloat16 (and the raw ones, for --resume DIR,
while the schedule is not over); `python -m samples.train.video.export` makes a pipeline folder of them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan
from torch import Tensor, nn
from transformers import T5Tokenizer

from samples.train.common.checkpoint import load_parts, save_parts
from samples.train.common.training import Average, CapturedStep, Clock, MixedOptimizer, Schedule, works
from samples.train.video.clips import ClipSource, Format
from samples.train.video.denoiser import Block, Rope, TextEncoder, denoise, rope_tables, scoped, text_keys, wan_block
from samples.train.video.evaluation import evaluate
from samples.train.video.latents import LatentEncoder, LatentPool
from samples.train.video.models import SHAPES, TEXT_SLOTS, Shape
from samples.train.video.text import build_tokenizer, caption_words, silence_letters

PADDED_LENGTHS = (512, 512, 512, 226, 128, 64)
"""max_sequence_length of the pipeline call, drawn anew for every clip (see denoiser.py)."""

_END_MARK = 1


@dataclass(frozen=True)
class Settings:
    """Of one run. `formats` are (format, share of the steps, size of its pool)."""

    seconds: float
    batch: int = 128
    rate: float = 3e-3
    drop_text: float = 0.1
    pool_seconds: float = 45.0
    replaced_clips: int = 512
    replace_every: int = 300
    formats: tuple[tuple[Format, int, int], ...] = (
        (Format(), 8, 100_000),
        (Format(9, 96, 96), 1, 10_000),
        (Format(17, 64, 64), 1, 10_000),
    )
    compiles: bool = True
    log_every: int = 500
    schedule_start: float = 0.0
    schedule_end: float = 1.0


class VideoModel(nn.Module):
    """The two trained parts, so that their weights have one set of names."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.transformer = shape.transformer()
        self.text_encoder = shape.text_encoder(vocabulary)


def cast(name: str, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrices compute in `dtype`; what is small, or kept in fp32 by diffusers, stays as it is."""
    keeps = ("norm", "scale_shift_table", "time_embedder", "relative_attention_bias", "shared", "embed_tokens")
    return weight if any(part in name for part in keeps) else weight.to(dtype)


def split_parameters(model: VideoModel) -> tuple[list[Tensor], list[Tensor]]:
    """(matrices inside layers for Muon, everything else for AdamW)."""
    matrices: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in model.named_parameters():
        is_inside = "blocks." in name or "encoder.block." in name
        is_matrix = parameter.ndim == 2 and is_inside and "relative_attention_bias" not in name
        (matrices if is_matrix else vectors).append(parameter)
    return matrices, vectors


class Trainer:
    """The weights, their average, the optimiser, and a step for each pool."""

    def __init__(self, model: VideoModel, settings: Settings, device: torch.device) -> None:
        self.model, self.settings, self.device = model.to(device), settings, device
        self.optimizer = MixedOptimizer(*split_parameters(model), weight_decay=0.01)
        self.named = dict(model.named_parameters())
        names = {id(p): name for name, p in self.named.items()}
        self._order = [names[id(p)] for p in self.optimizer.parameters]
        self.average = Average(list(self.named.values()), 0.999)
        self._text = TextEncoder.of(model.text_encoder, TEXT_SLOTS)
        self._padded = torch.tensor(PADDED_LENGTHS, device=device)
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def loss(self, pool: LatentPool, rope: Rope, block: Block) -> Tensor:
        """Mean squared error of the velocity over a batch drawn on the device."""
        device, batch = self.device, self.settings.batch
        rows = torch.randint(len(pool.ids), (batch,), device=device)
        clean, ids, length = pool.latents[rows].float(), pool.ids[rows].long(), pool.lengths[rows].long()
        is_dropped = torch.rand(batch, device=device) < self.settings.drop_text
        empty = torch.zeros_like(ids)
        empty[:, 0] = _END_MARK
        ids, length = torch.where(is_dropped[:, None], empty, ids), torch.where(is_dropped, 1, length)
        noise = torch.randn_like(clean)
        sigma = torch.sigmoid(torch.randn(batch, device=device) + 0.6)
        sigma = torch.where(torch.rand(batch, device=device) < 0.15, torch.rand(batch, device=device), sigma)
        s = sigma[:, None, None, None, None]
        velocity = self.velocity((1 - s) * clean + s * noise, sigma, ids, length, rope, block)
        return (velocity - (noise - clean)).square().mean()

    def velocity(self, x: Tensor, sigma: Tensor, ids: Tensor, length: Tensor, rope: Rope, block: Block) -> Tensor:
        weights = {name: cast(name, p, self._dtype) for name, p in self.named.items()}
        padded = self._padded[torch.randint(len(self._padded), (len(x),), device=self.device)]
        hidden = self._text(scoped(weights, "text_encoder"), ids, length)
        text, bias = text_keys(hidden, length, padded)
        transformer = scoped(weights, "transformer")
        return denoise(transformer, self.model.transformer, x, 1000 * sigma, text, bias, rope, block)

    def step_on(self, pool: LatentPool, block: Block) -> CapturedStep:
        rope = rope_tables(self.model.transformer, *pool.latents.shape[2:])

        def run() -> Tensor:
            loss = self.loss(pool, rope, block)
            norm = self.optimizer.step(torch.autograd.grad(loss, self.optimizer.parameters))
            self.average.update()
            return torch.stack([loss.detach(), norm])

        return CapturedStep(run, self.device)

    def compiled_block(self, pool: LatentPool) -> Block:
        """`wan_block` compiled for the clips of `pool`, or as it is if that fails."""
        fast: Block = torch.compile(wan_block)
        rope = rope_tables(self.model.transformer, *pool.latents.shape[2:])

        def trial() -> None:
            torch.autograd.grad(self.loss(pool, rope, fast), self.optimizer.parameters)

        return fast if works("compiling the block", trial) else wan_block

    def train(self, pools: list[LatentPool], schedule: Schedule, clock: Clock) -> int:
        """Steps until the schedule's seconds are over; returns how many."""
        fast = self.compiled_block(pools[0]) if self.settings.compiles and self.device.type == "cuda" else wan_block
        steps = [self.step_on(pool, fast if index == 0 else wan_block) for index, pool in enumerate(pools)]
        turns = [index for index, (_, share, _) in enumerate(self.settings.formats) for _ in range(share)]
        start, done, recent = clock.elapsed, 0, torch.zeros(2, device=self.device)
        while (elapsed := clock.elapsed - start) < schedule.seconds:
            self.optimizer.rate.fill_(schedule.rate(done, elapsed))
            chosen = turns[done % len(turns)]
            result = steps[chosen]()
            if chosen == 0:
                recent.lerp_(result, 0.02 if done > 50 else 0.5)
            if done == schedule.warmup_steps:
                self.average.restart()
            if done % self.settings.log_every == 0:
                loss, norm = recent.tolist()
                print(
                    f"dit step {done} {elapsed:.0f} s progress {schedule.progress(elapsed):.3f} "
                    f"loss {loss:.4f} norm {norm:.2f}",
                    flush=True,
                )
                assert loss == loss, "the loss is not a number"
            done += 1
            if done % self.settings.replace_every == 0:
                pools[0].replace(self.settings.replaced_clips)
        return done

    def state(self, is_final: bool) -> dict[str, Tensor]:
        """Averaged weights in bfloat16, and the raw ones unless training is over."""
        averaged = dict(zip(self.named, self.average.values, strict=True))
        state = {f"average.{name}": value.to(torch.bfloat16) for name, value in averaged.items()}
        raw = {} if is_final else {f"raw.{name}": p.detach().to(torch.bfloat16) for name, p in self.named.items()}
        return state | raw


def make_pools(
    vae_folder: Path, tokenizer: T5Tokenizer, settings: Settings, seed: int, device: torch.device
) -> list[LatentPool]:
    encoder = LatentEncoder(AutoencoderKLWan.from_pretrained(vae_folder, torch_dtype=torch.float32), device)
    source, pools = ClipSource(seed, device), []
    total = sum(count for _, _, count in settings.formats)
    for size, _, count in settings.formats:
        pool = LatentPool(source, encoder, tokenizer, size, count)
        filled = pool.fill(settings.pool_seconds * count / total)
        print(
            f"{filled} clips of {size.width}x{size.height}x{size.frames} encoded, "
            f"latent std {pool.latents[:2000].float().std():.3f}",
            flush=True,
        )
        pools.append(pool)
    return pools


def start_model(shape: Shape, resume: Path | None) -> tuple[VideoModel, T5Tokenizer, dict[str, Any]]:
    """A new model or an earlier run's, its tokenizer, and the record so far (`words`, `steps`, `seconds`)."""
    if resume is None:
        record: dict[str, Any] = {"words": dict(sorted(caption_words().items())), "steps": 0, "seconds": 0}
        tokenizer = build_tokenizer(record["words"])
        model = VideoModel(shape, len(tokenizer))
        silence_letters(tokenizer, model.text_encoder)
        return model, tokenizer, record
    state, record = load_parts(resume, "dit")
    tokenizer = build_tokenizer(record["words"])
    model = VideoModel(shape, len(tokenizer))
    raw = {name.removeprefix("raw."): value.float() for name, value in state.items() if name.startswith("raw.")}
    if not raw:
        raise ValueError(f"{resume}: its schedule was over, only averaged weights are there")
    own = dict(model.named_parameters())
    assert raw.keys() == own.keys(), "the checkpoint is of another shape"
    with torch.no_grad():
        for name, value in raw.items():
            own[name].copy_(value)
    return model, tokenizer, record


def train(
    shape: Shape, settings: Settings, vae: Path, out: Path, device: torch.device, seed: int, resume: Path | None
) -> None:
    """One run: pools, steps, checkpoint."""
    clock = Clock()
    seed += round(1000 * settings.schedule_start)  # a later part of the schedule sees other clips
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    model, tokenizer, record = start_model(shape, resume)
    trainer = Trainer(model, settings, device)
    pools = make_pools(vae, tokenizer, settings, seed, device)
    print(
        f"{sum(p.numel() for p in trainer.named.values()) / 1e6:.2f} M weights, training from {clock.elapsed:.0f} s on",
        flush=True,
    )
    left = settings.seconds - clock.elapsed
    schedule = Schedule(left, settings.rate, 200, start=settings.schedule_start, end=settings.schedule_end)
    record["steps"] += trainer.train(pools, schedule, clock)
    record["seconds"] += round(clock.elapsed)
    record |= {"shape": shape.name, "seed": seed, "progress": settings.schedule_end}
    save_parts(out, "dit", trainer.state(is_final=settings.schedule_end >= 1.0), record)
    print(json.dumps({key: value for key, value in record.items() if key != "words"}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vae", type=Path, required=True, help="folder written by samples.train.video.vae")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500.0, help="wall-clock budget, the evaluation included")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--schedule-start", type=float, default=0.0)
    parser.add_argument("--schedule-end", type=float, default=1.0)
    parser.add_argument("--judge", type=Path, help="folder written by samples.train.video.judge: evaluate at the end")
    parser.add_argument("--evaluation-seconds", type=float, default=45.0, help="kept free for it, if --judge is given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--toy", action="store_true", help="a toy shape and tiny pools, to try the script on a CPU")
    options = parser.parse_args()
    budget = options.seconds - (options.evaluation_seconds if options.judge else 0.0)
    span = {"schedule_start": options.schedule_start, "schedule_end": options.schedule_end}
    settings = Settings(budget, **span)
    if options.toy:
        formats = ((Format(), 2, 8), (Format(9, 64, 64), 1, 8))
        settings = Settings(budget, 4, formats=formats, replaced_clips=4, replace_every=5, log_every=1, **span)
    device = torch.device(options.device)
    shape = SHAPES["toy" if options.toy else "shipped"]
    train(shape, settings, options.vae, options.out, device, options.seed, options.resume)
    if options.judge:
        evaluate(options.vae, options.out, options.judge, options.out, device, quick=options.toy)


if __name__ == "__main__":
    main()
