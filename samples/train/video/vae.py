"""Trains the video autoencoder: `python -m samples.train.video.vae --out DIR --seconds 240`.

Stage 1 learns single frames, like an image autoencoder; stage 2 starts from that, inflated over time, and learns whole
clips. Both share one wall-clock budget, in which rendering, compiling and the evaluation are counted. The result is
`DIR/config.json` + `DIR/diffusion_pytorch_model.safetensors` (bfloat16 average, loads with AutoencoderKLWan), the fp32
state `DIR/vae-0.safetensors` for `--resume DIR`, and the figures in `DIR/vae.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan
from torch import Tensor

from samples.train.common.checkpoint import load_parts, save_parts
from samples.train.common.losses import kl_per_value, reconstruction_loss
from samples.train.common.training import Average, CapturedStep, Clock, MixedOptimizer, Schedule, works
from samples.train.video.clips import ClipPool, ClipSource
from samples.train.video.models import SHAPES, Shape
from samples.train.video.sequence import NormSilu, SequenceVae, inflate_from_images, norm_silu

HELD_OUT_SEED = 10**9


@dataclass(frozen=True)
class Settings:
    """Of one run; times are shares of the budget."""

    seconds: float
    frames_batch: int = 128
    clips_batch: int = 16
    pool_clips: int = 4096
    replaced_clips: int = 256
    replace_every: int = 400
    first_stage: float = 0.35
    evaluation: float = 0.06
    frames_rate: float = 5e-3
    clips_rate: float = 2e-3
    kl_weight: float = 2e-3
    evaluation_clips: int = 256
    uses_muon: bool = True
    compiles: bool = True
    log_every: int = 200


def compiled_norm_silu(device: torch.device) -> NormSilu:
    """`norm_silu` as one kernel each way, over [pixels, channels] so that few shapes are compiled."""

    def rows(x_MC: Tensor, gamma_C: Tensor) -> Tensor:
        norm = x_MC.float().square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
        return torch.nn.functional.silu((x_MC / norm).to(x_MC.dtype) * gamma_C)

    fast = torch.compile(rows)

    def mark(x_MC: Tensor, gamma_C: Tensor) -> None:
        torch._dynamo.maybe_mark_dynamic(x_MC, 0)
        torch._dynamo.mark_static(x_MC, 1)
        torch._dynamo.mark_static(gamma_C, 0)

    def activation(x_NCHW: Tensor, gamma: Tensor) -> Tensor:
        x_NHWC = x_NCHW.permute(0, 2, 3, 1)
        x_MC, gamma_C = x_NHWC.reshape(-1, x_NCHW.shape[1]), gamma.reshape(-1)
        mark(x_MC, gamma_C)
        y = fast(x_MC, gamma_C)
        return y.view(x_NHWC.shape).permute(0, 3, 1, 2)

    def trial() -> None:
        x = torch.randn(2, 16, 8, 8, device=device, dtype=torch.bfloat16, requires_grad=True)
        x = x.contiguous(memory_format=torch.channels_last)
        gamma = torch.ones(1, 16, 1, 1, device=device, dtype=torch.bfloat16, requires_grad=True)
        activation(x, gamma).sum().backward()

    return activation if works("compiling the normalisation", trial) else norm_silu


class Trainer:
    """Weights, their average, and the step over a batch drawn on the device."""

    def __init__(self, vae: AutoencoderKLWan, pool: ClipPool, settings: Settings, device: torch.device) -> None:
        self.vae, self.pool, self.settings, self.device = vae, pool, settings, device
        uses_compiled = settings.compiles and device.type == "cuda"
        self.sequence = SequenceVae(vae, compiled_norm_silu(device) if uses_compiled else norm_silu)
        self.named = dict(self.sequence.named_parameters())
        self.average = Average(list(self.named.values()), 0.998)

    def optimizer(self) -> MixedOptimizer:
        matrices = [p for p in self.named.values() if self.settings.uses_muon and p.ndim >= 4 and p.shape[0] > 3]
        chosen = {id(p) for p in matrices}
        vectors = [p for p in self.named.values() if id(p) not in chosen]
        return MixedOptimizer(matrices, vectors, betas=(0.9, 0.99), weight_decay=1e-4)

    def loss(self, clip_BTCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, squared error, KL) of pixels in [-1, 1]; on half the batch the decoder sees extra latent noise."""
        compute = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        kl = clip_BTCHW.new_zeros(())

        def sample(moments: Tensor) -> Tensor:
            nonlocal kl
            mean, log_variance = moments.float().chunk(2, 2)
            log_variance = log_variance.clamp(-20, 10)
            kl = kl_per_value(mean, log_variance)
            z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
            strength = (torch.rand(len(z), 1, 1, 1, 1, device=z.device) - 0.5).clamp(min=0) / 2
            return (z + strength * z.detach().std() * torch.randn_like(z)).to(compute)

        weights = {name: p.to(compute) for name, p in self.named.items()}
        pixels, _ = torch.func.functional_call(self.sequence, weights, (clip_BTCHW.to(compute), sample))
        loss, squared = reconstruction_loss(pixels.float().contiguous(), clip_BTCHW)
        return loss + self.settings.kl_weight * kl, squared, kl.detach()

    def stage(self, name: str, draw: Callable[[], Tensor], schedule: Schedule, clock: Clock) -> None:
        """Trains on what `draw` gives until the schedule's seconds are over."""
        optimizer = self.optimizer()

        def run() -> Tensor:
            loss, squared, kl = self.loss(draw().float() / 127.5 - 1)
            norm = optimizer.step(
                torch.autograd.grad(loss, optimizer.parameters, allow_unused=True, materialize_grads=True)
            )
            self.average.update()
            return torch.stack([loss.detach(), squared, kl, norm])

        step, captured, start = 0, CapturedStep(run, self.device), clock.elapsed
        while (elapsed := clock.elapsed - start) < schedule.seconds:
            optimizer.rate.fill_(schedule.rate(step, elapsed))
            result = captured()
            if step == schedule.warmup_steps:
                self.average.restart()
            if step % self.settings.log_every == 0:
                loss, squared, kl, norm = result.tolist()
                decibel = -10 * torch.tensor(squared).log10().item()
                print(
                    f"{name} step {step} {elapsed:.0f} s loss {loss:.4f} "
                    f"PSNR {decibel:.2f} KL {kl:.2f} norm {norm:.2f}",
                    flush=True,
                )
                assert loss == loss, "the loss is not a number"
            step += 1
            if step % self.settings.replace_every == 0:
                self.pool.replace(self.settings.replaced_clips)
        print(f"{name}: {step} steps in {clock.elapsed - start:.0f} s", flush=True)

    def averaged(self, shape: Shape) -> AutoencoderKLWan:
        """A new autoencoder with the averaged weights and the latent statistics of the pool."""
        values = dict(zip(self.named, self.average.values, strict=True))
        state = {name.removeprefix("vae."): value for name, value in values.items()}
        vae = shape.vae().to(self.device)
        vae.load_state_dict(state)
        mean, std = latent_statistics(vae, self.pool)
        vae.register_to_config(latents_mean=mean, latents_std=std)
        return vae.to(torch.bfloat16)


@torch.no_grad()
def latent_statistics(vae: AutoencoderKLWan, pool: ClipPool, clips: int = 512) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each latent channel over sampled posteriors."""
    sequence, values = SequenceVae(vae), []
    for first in range(0, min(clips, len(pool.clips)), 32):
        moments = sequence.encode(pool.clips[first : first + 32].float() / 127.5 - 1)
        mean, log_variance = moments.chunk(2, 2)
        values.append(mean + (0.5 * log_variance).exp() * torch.randn_like(mean))
    z = torch.cat(values)
    return z.mean((0, 1, 3, 4)).tolist(), z.std((0, 1, 3, 4)).tolist()


@torch.no_grad()
def frame_quality(vae: AutoencoderKLWan, clips_BTCHW: Tensor, batch: int = 32) -> dict[str, object]:
    """PSNR of each frame after diffusers' own (chunked) encode and decode, in the weights' values but fp32 arithmetic.

    `mean` averages the decibels of single frames; `pooled` is the decibel value of the mean squared error, which one
    bad clip can spoil.
    """
    exact = AutoencoderKLWan.from_config(vae.config).to(clips_BTCHW.device)
    exact.load_state_dict({name: value.float() for name, value in vae.state_dict().items()})
    errors = []
    for part in clips_BTCHW.split(batch):
        pixels = (part.float() / 127.5 - 1).transpose(1, 2)
        decoded = exact.decode(exact.encode(pixels).latent_dist.mode()).sample
        errors.append(((decoded - pixels) / 2).square().mean((1, 3, 4)))
    squared_BT = torch.cat(errors)
    decibels = -10 * squared_BT.clamp_min(1e-10).log10()
    return {
        "clips": len(squared_BT),
        "mean": decibels.mean().item(),
        "pooled": -10 * squared_BT.mean().log10().item(),
        "per_frame": [round(v, 2) for v in decibels.mean(0).tolist()],
        "pooled_per_frame": [round(v, 2) for v in (-10 * squared_BT.mean(0).log10()).tolist()],
        "worst_clip": decibels.mean(1).min().item(),
    }


def save(vae: AutoencoderKLWan, trainer: Trainer, figures: dict[str, object], directory: Path) -> None:
    vae.save_pretrained(directory)
    save_parts(directory, "vae", dict(trainer.named), {"figures": figures})
    (directory / "vae.json").write_text(json.dumps(figures, indent=1))


def train(
    shape: Shape, settings: Settings, out: Path, device: torch.device, seed: int, resume: Path | None
) -> dict[str, object]:
    clock = Clock()
    torch.manual_seed(seed)
    torch._dynamo.config.recompile_limit = 64
    torch.backends.cudnn.benchmark = True
    vae = shape.vae()
    if resume:
        state, _ = load_parts(resume, "vae")
        vae.load_state_dict({name.removeprefix("vae."): value for name, value in state.items()})
    else:
        inflate_from_images(vae)
    pool = ClipPool(ClipSource(seed, device), settings.pool_clips)
    print(f"{len(pool.clips)} clips rendered after {clock.elapsed:.0f} s", flush=True)
    trainer = Trainer(vae.to(device), pool, settings, device)
    left = settings.seconds * (1 - settings.evaluation) - clock.elapsed
    first = 0.0 if resume else left * settings.first_stage
    if first:
        schedule = Schedule(first, settings.frames_rate, warmup_steps=60, decay_share=0.6)
        trainer.stage("frames", lambda: pool.draw_frames(settings.frames_batch), schedule, clock)
    rest = settings.seconds * (1 - settings.evaluation) - clock.elapsed
    schedule = Schedule(rest, settings.clips_rate, warmup_steps=60, decay_share=0.85)
    trainer.stage("clips", lambda: pool.draw_clips(settings.clips_batch), schedule, clock)

    torch.backends.cudnn.benchmark = False  # the evaluation's shapes come once each
    final = trainer.averaged(shape)
    source = ClipSource(HELD_OUT_SEED, device)
    unseen = source.render(source.scenes(settings.evaluation_clips))
    figures: dict[str, object] = {
        "seed": seed,
        "seconds": round(clock.elapsed),
        "psnr_96x96x17": frame_quality(final, unseen),
    }
    figures["psnr_96x96x9"] = frame_quality(final, unseen[:64, ::2])
    print(json.dumps(figures, indent=1), flush=True)
    save(final, trainer, figures, out)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--resume", type=Path, help="folder of an earlier run: only the clip stage, from its weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--toy", action="store_true", help="a toy shape and tiny batches, to try the script on a CPU")
    options = parser.parse_args()
    settings = Settings(options.seconds)
    if options.toy:
        settings = Settings(options.seconds, 4, 1, 8, 2, 4, evaluation_clips=2, log_every=1)
    train(
        SHAPES["toy" if options.toy else "shipped"],
        settings,
        options.out,
        torch.device(options.device),
        options.seed,
        options.resume,
    )


if __name__ == "__main__":
    main()
