"""Trains the image autoencoder: `python -m samples.train.image.vae --out DIR --seconds 270`.

Rendering, compiling and the evaluation are counted in the budget; the learning rate falls to zero at its end. It makes
`DIR/config.json` + `DIR/diffusion_pytorch_model.safetensors` (the bfloat16 average, loads with AutoencoderKL, and
`--resume DIR` goes on from it), the figures in `DIR/vae.json` and pictures beside their reconstructions in
`DIR/reconstructions.png`.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from PIL import Image
from torch import Tensor, nn

from samples.train.common.losses import kl_per_value, reconstruction_loss
from samples.train.common.training import Average, CapturedStep, Clock, MixedOptimizer, Schedule
from samples.train.image.models import NATIVE_SIZE, SHAPES, Shape
from samples.train.image.pictures import HELD_OUT_SEED, PictureSource, to_signed

EVALUATION_SIZES = ((128, 128), (96, 96), (192, 192), (128, 192))


@dataclass(frozen=True)
class Settings:
    """Of one run. pool pictures are rendered at the start, `replaced` of them again every `replace_every` steps."""

    seconds: float
    batch: int = 64
    pool: int = 40_000
    replaced: int = 2_000
    replace_every: int = 500
    rate: float = 3e-3
    kl_weight: float = 1e-3
    noise: float = 0.25
    evaluation_pictures: int = 500
    reserve_s: float = 12.0
    compiles: bool = True
    log_every: int = 100


class Objective(nn.Module):
    """The loss of a batch; one module, so that it compiles as one graph."""

    def __init__(self, vae: AutoencoderKL, kl_weight: float) -> None:
        super().__init__()
        self.encoder, self.decoder, self.kl_weight = vae.encoder, vae.decoder, kl_weight

    def forward(
        self, pixels_N3HW: Tensor, posterior_noise: Tensor, extra_noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, squared error in the scale of [0, 1], KL in nats per latent value).

        extra_noise, in units of the latents' deviation, teaches the decoder to bear what a denoiser leaves behind.
        """
        compute = next(self.encoder.parameters()).dtype
        mean, log_variance = self.encoder(pixels_N3HW.to(compute)).float().chunk(2, 1)
        log_variance = log_variance.clamp(-20, 10)
        z = mean + (0.5 * log_variance).exp() * posterior_noise
        z = z + extra_noise * z.detach().std()
        decoded = self.decoder(z.to(compute)).float()
        loss, squared = reconstruction_loss(decoded[:, None], pixels_N3HW[:, None])
        kl = kl_per_value(mean, log_variance)
        return loss + self.kl_weight * kl, squared, kl.detach()


class Trainer:
    """fp32 masters and their average beside a model in the compute type (bfloat16 on a GPU)."""

    def __init__(self, vae: AutoencoderKL, source: PictureSource, settings: Settings) -> None:
        self.settings, self.source, self.device = settings, source, source.device
        self.pool = source.render(source.scenes(settings.pool), NATIVE_SIZE, NATIVE_SIZE)
        vae = vae.to(self.device)
        self.masters = {name: p.detach().clone().float() for name, p in vae.named_parameters()}
        self.vae = vae.to(torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        self.weights = list(self.vae.parameters())
        self.average = Average(list(self.masters.values()), 0.998)
        self._latent_shape = (settings.batch, self.vae.config.latent_channels, NATIVE_SIZE // 8, NATIVE_SIZE // 8)

    def _optimizer(self) -> tuple[MixedOptimizer, list[int]]:
        """The optimiser and, for each of its parameters, the index of the weight."""
        is_matrix = [p.ndim == 4 and p.shape[0] > 3 for p in self.masters.values()]
        order = [i for i, m in enumerate(is_matrix) if m] + [i for i, m in enumerate(is_matrix) if not m]
        masters = list(self.masters.values())
        matrices = [masters[i] for i in order if is_matrix[i]]
        vectors = [masters[i] for i in order if not is_matrix[i]]
        return MixedOptimizer(matrices, vectors, betas=(0.9, 0.99), weight_decay=1e-4), order

    def _noise(self) -> tuple[Tensor, Tensor]:
        posterior = torch.randn(self._latent_shape, device=self.device)
        strength = (torch.rand(self.settings.batch, 1, 1, 1, device=self.device) - 0.5).clamp(min=0) * 2
        return posterior, self.settings.noise * strength * torch.randn(self._latent_shape, device=self.device)

    def train(self, clock: Clock) -> int:
        """Runs until the budget is over but for the reserve; the number of steps."""
        optimizer, order = self._optimizer()
        weights = [self.weights[i] for i in order]
        objective = Objective(self.vae, self.settings.kl_weight)
        if self.settings.compiles and self.device.type == "cuda":
            self._compile(objective)

        def run() -> Tensor:
            rows = torch.randint(len(self.pool), (self.settings.batch,), device=self.device)
            loss, squared, kl = objective(to_signed(self.pool[rows]), *self._noise())
            norm = optimizer.step(torch.autograd.grad(loss, weights))
            with torch.no_grad():
                torch._foreach_copy_(weights, optimizer.parameters)
            self.average.update()
            return torch.stack([loss.detach(), squared, kl, norm])

        captured = CapturedStep(run, self.device)
        optimizer.rate.fill_(1e-6)
        captured()
        start = clock.elapsed
        schedule = Schedule(self.settings.seconds - self.settings.reserve_s - start, self.settings.rate, 100, 0.7)
        print(f"ready after {start:.0f} s, {schedule.seconds:.0f} s to train", flush=True)
        step = 0
        while (elapsed := clock.elapsed - start) < schedule.seconds:
            optimizer.rate.fill_(schedule.rate(step, elapsed))
            result = captured()
            if step == schedule.warmup_steps:
                self.average.restart()
            if step % self.settings.log_every == 0:
                _report(step, elapsed, result)
            step += 1
            if step % self.settings.replace_every == 0:
                self._replace(step // self.settings.replace_every)
        _report(step, clock.elapsed - start, result)
        return step

    def _compile(self, objective: Objective) -> None:
        """Compiles forward and backward; where the compiler fails, training goes on eagerly (about half as fast)."""
        batch = to_signed(self.pool[: self.settings.batch])
        try:
            objective.compile(dynamic=False)
            torch.autograd.grad(objective(batch, *self._noise())[0], self.weights)
        except RuntimeError as error:  # the compiler's exceptions derive from it
            print(f"not compiled: {error}", flush=True)
            objective._compiled_call_impl = None

    def _replace(self, turn: int) -> None:
        first = (turn * self.settings.replaced) % max(1, self.settings.pool - self.settings.replaced + 1)
        scenes = self.source.scenes(self.settings.replaced)
        self.pool[first : first + len(scenes)] = self.source.render(scenes, NATIVE_SIZE, NATIVE_SIZE)

    @torch.no_grad()
    def averaged(self, shape: Shape) -> AutoencoderKL:
        """A new autoencoder, in bfloat16, with the averaged weights and the scale and shift of its latents."""
        vae = shape.vae().to(self.device)
        vae.load_state_dict(dict(zip(self.masters, self.average.values, strict=True)))
        vae = vae.to(torch.bfloat16)
        moments = exact(vae).encoder(to_signed(self.pool[:512])).chunk(2, 1)
        z = moments[0] + (0.5 * moments[1]).exp() * torch.randn_like(moments[0])
        vae.register_to_config(scaling_factor=round(1 / z.std().item(), 4), shift_factor=round(z.mean().item(), 4))
        print("deviation of the scaled channels:", [round(v, 2) for v in (z.std((0, 2, 3)) / z.std()).tolist()])
        return vae


def _report(step: int, elapsed: float, result: Tensor) -> None:
    loss, squared, kl, norm = result.tolist()
    if loss != loss:
        raise FloatingPointError(f"the loss is not a number at step {step}")
    decibels = -10 * torch.tensor(squared).log10().item()
    print(
        f"vae step {step} {elapsed:.0f} s loss {loss:.4f} PSNR {decibels:.2f} KL {kl:.2f} norm {norm:.2f}", flush=True
    )


def exact(vae: AutoencoderKL) -> AutoencoderKL:
    """A float32 copy, for measuring."""
    copy = AutoencoderKL.from_config(vae.config).to(next(vae.parameters()).device)
    copy.load_state_dict({name: value.float() for name, value in vae.state_dict().items()})
    return copy


@torch.no_grad()
def reconstruct(vae: AutoencoderKL, images_N3HW: Tensor, batch: int = 64) -> Tensor:
    """Bytes to bytes through the mode of the posterior."""
    parts = [vae.decode(vae.encode(to_signed(part)).latent_dist.mode()).sample for part in images_N3HW.split(batch)]
    return ((torch.cat(parts) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def quality(vae: AutoencoderKL, images_N3HW: Tensor) -> dict[str, float]:
    """PSNR of 8-bit reconstructions: `mean` of the pictures' decibels, `pooled` that of the mean squared error."""
    got = reconstruct(vae, images_N3HW)
    squared = ((got.float() - images_N3HW.float()) / 255).square().mean((1, 2, 3))
    decibels = -10 * squared.clamp_min(1e-10).log10()
    pooled = -10 * squared.mean().log10().item()
    return {"mean": decibels.mean().item(), "pooled": pooled, "worst": decibels.min().item()}


def grid(images_N3HW: Tensor, columns: int) -> Image.Image:
    """Pictures of one size as one picture."""
    rows = -(-len(images_N3HW) // columns)
    height, width = images_N3HW.shape[2:]
    canvas = torch.full((rows * (height + 2), columns * (width + 2), 3), 255, dtype=torch.uint8)
    for index, image in enumerate(images_N3HW.cpu()):
        y, x = index // columns * (height + 2), index % columns * (width + 2)
        canvas[y : y + height, x : x + width] = image.permute(1, 2, 0)
    return Image.fromarray(canvas.numpy())


def evaluate(vae: AutoencoderKL, count: int, out: Path, device: torch.device) -> dict[str, dict[str, float]]:
    """PSNR on fresh scenes of several sizes; writes the picture of the first ones."""
    source, exact_vae, table = PictureSource(HELD_OUT_SEED, device), exact(vae), {}
    for height, width in EVALUATION_SIZES:
        images = source.render(source.scenes(count), height, width)
        table[f"{height}x{width}"] = quality(exact_vae, images)
        if (height, width) == (NATIVE_SIZE, NATIVE_SIZE):
            shown = images[:24]
            pairs = torch.stack([shown, reconstruct(exact_vae, shown)], 1).flatten(0, 1)
            grid(pairs, 12).save(out / "reconstructions.png")
    return table


def train(shape: Shape, settings: Settings, out: Path, device: torch.device, seed: int, resume: Path | None) -> None:
    """The whole run."""
    clock = Clock()
    torch.manual_seed(seed)
    vae = AutoencoderKL.from_pretrained(resume) if resume else shape.vae()
    trainer = Trainer(vae, PictureSource(seed, device), settings)
    print(f"{len(trainer.pool)} pictures rendered after {clock.elapsed:.0f} s", flush=True)
    steps = trainer.train(clock)
    final = trainer.averaged(shape)
    out.mkdir(parents=True, exist_ok=True)
    final.save_pretrained(out)
    figures = {
        "seed": seed,
        "steps": steps,
        "batch": settings.batch,
        "seconds": round(clock.elapsed),
        "psnr": evaluate(final, settings.evaluation_pictures, out, device),
        "scaling_factor": final.config.scaling_factor,
        "shift_factor": final.config.shift_factor,
    }
    (out / "vae.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=270.0)
    parser.add_argument("--resume", type=Path, help="folder of an earlier run, whose average is trained on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true", help="slower steps, no minute of compiling")
    parser.add_argument("--toy", action="store_true", help="a toy shape and tiny batches, to try the script on a CPU")
    options = parser.parse_args()
    settings = Settings(options.seconds, compiles=not options.no_compile)
    if options.toy:
        settings = Settings(options.seconds, 4, 24, 4, 5, evaluation_pictures=2, reserve_s=2.0, log_every=5)
    shape = SHAPES["toy" if options.toy else "shipped"]
    train(shape, settings, options.out, torch.device(options.device), options.seed, options.resume)


if __name__ == "__main__":
    main()
