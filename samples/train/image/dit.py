"""Trains the image denoiser: `python -m samples.train.image.dit --vae DIR --text-encoder DIR --out DIR --seconds 500`.

Loading, encoding, compiling and saving are counted in the budget. A run can be one part of a longer schedule:
`--schedule-start 0 --schedule-end 0.5`, then `--schedule-start 0.5 --schedule-end 1 --resume DIR`; the learning rate
reaches zero at 1. It makes `DIR/dit-*.safetensors` (the bfloat16 average of the weights, in parts of at most 16 MiB,
from which a later run goes on too); `DIR/dit.json` has the figures. `python -m samples.train.image.export` makes a
pipeline of it.

Flow matching: x_t = (1 - s) x_0 + s n; the model gets t = 1 - s and predicts x_0 - n, as ZImagePipeline expects.
"""

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from torch import Tensor, nn

from samples.train.common.checkpoint import load_parts, save_parts
from samples.train.common.training import Average, CapturedStep, Clock, MixedOptimizer, Schedule
from samples.train.image.forward import StaticDenoiser
from samples.train.image.latents import Bucket, LatentPool, buckets, build_pool
from samples.train.image.models import LATENT_FACTOR, SHAPES, Shape
from samples.train.image.pictures import PictureSource
from samples.train.image.text import CaptionEncoder


@dataclass(frozen=True)
class Settings:
    """Of one run; start and end are the share of the whole schedule that it covers."""

    seconds: float
    start: float = 0.0
    end: float = 1.0
    batch: int = 256
    scenes: int = 120_000
    rate: float = 3e-3
    average: float = 0.999
    caption_dropout: float = 0.1
    decay_share: float = 0.55
    reserve_s: float = 8.0
    compiles: bool = True
    log_every: int = 100


@torch.no_grad()
def initialise(model: ZImageTransformer2DModel) -> None:
    """The prediction begins at zero, modulation does nothing, gates (a tanh) are a little open."""
    for final in model.all_final_layer.values():
        for layer in (final.linear, final.adaLN_modulation[1]):
            layer.weight.zero_()
            layer.bias.zero_()
    for layer in (*model.noise_refiner, *model.layers):
        modulation = layer.adaLN_modulation[0]
        modulation.weight.zero_()
        modulation.bias.zero_()
        for gate in (1, 3):  # scale, gate, scale, gate
            modulation.bias.chunk(4)[gate].fill_(0.3)


class Objective(nn.Module):
    """Squared error of the prediction for one bucket; a module, so that it compiles as one graph."""

    def __init__(self, denoiser: StaticDenoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, x_NChw: Tensor, noise: Tensor, sigma_N: Tensor, text_NLD: Tensor, lengths_N: Tensor) -> Tensor:
        sigma = sigma_N[:, None, None, None]
        mixed = (1 - sigma) * x_NChw + sigma * noise
        predicted: Tensor = self.denoiser(mixed, 1 - sigma_N, text_NLD, lengths_N)
        return (predicted - (x_NChw - noise)).square().mean()


class Trainer:
    """fp32 masters and their average beside a model in the compute type; one captured step for each bucket."""

    def __init__(self, model: ZImageTransformer2DModel, settings: Settings, device: torch.device) -> None:
        self.settings, self.device = settings, device
        model = model.to(device)
        self.masters = {name: p.detach().clone().float() for name, p in model.named_parameters()}
        self.model = model.to(torch.bfloat16 if device.type == "cuda" else torch.float32)
        is_matrix = {name: p.ndim == 2 and _is_hidden(name) for name, p in self.masters.items()}
        order = sorted(self.masters, key=lambda name: not is_matrix[name])
        own = dict(self.model.named_parameters())
        self.weights = [own[name] for name in order]
        matrices = [self.masters[name] for name in order if is_matrix[name]]
        vectors = [self.masters[name] for name in order if not is_matrix[name]]
        self.optimizer = MixedOptimizer(matrices, vectors)
        self.average = Average(list(self.masters.values()), settings.average)

    def step_of(self, bucket: Bucket, pool: LatentPool, empty: tuple[Tensor, Tensor]) -> CapturedStep:
        """A training step on that bucket; `empty` is the text of the empty caption and its length."""
        height, width = bucket.height // LATENT_FACTOR, bucket.width // LATENT_FACTOR
        objective = Objective(StaticDenoiser(self.model, height, width, bucket.slots))

        def batch() -> tuple[Tensor, ...]:
            x, text, lengths = pool.draw(bucket.batch)
            is_dropped = torch.rand(bucket.batch, device=self.device) < self.settings.caption_dropout
            text = torch.where(is_dropped[:, None, None], empty[0], text)
            lengths = torch.where(is_dropped, empty[1], lengths)
            return x, torch.randn_like(x), _noise_levels(bucket.batch, self.device), text, lengths

        def run() -> Tensor:
            loss = objective(*batch())
            grads = torch.autograd.grad(loss, self.weights, allow_unused=True, materialize_grads=True)
            norm = self.optimizer.step(grads)
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.optimizer.parameters)
            self.average.update()
            return torch.stack([loss.detach(), norm])

        if self.settings.compiles and self.device.type == "cuda" and bucket.share > 0.5:
            self._compile(objective, batch())
        return CapturedStep(run, self.device)

    def _compile(self, objective: Objective, batch: tuple[Tensor, ...]) -> None:
        """Compiles forward and backward; where the compiler fails, training goes on eagerly."""
        try:
            objective.compile(dynamic=False)
            torch.autograd.grad(objective(*batch), self.weights, allow_unused=True)
        except RuntimeError as error:  # the compiler's exceptions derive from it
            print(f"not compiled: {error}", flush=True)
            objective._compiled_call_impl = None

    def train(self, steps: list[CapturedStep], shares: list[float], clock: Clock, seed: int) -> dict[str, float]:
        """Runs until the budget is over but for the reserve; number of steps, seconds and the last mean loss."""
        rng = random.Random(seed)
        self.optimizer.rate.fill_(0.0)
        for captured in steps:  # warm up and capture each, without learning
            for _ in range(4):
                captured()
        self.average.restart()
        start, settings = clock.elapsed, self.settings
        left = settings.seconds - settings.reserve_s - start
        schedule = Schedule(left, settings.rate, 200, settings.decay_share, settings.start, settings.end)
        print(f"ready after {start:.0f} s, {left:.0f} s to train", flush=True)
        step, smooth = 0, 0.0
        while (elapsed := clock.elapsed - start) < left:
            self.optimizer.rate.fill_(schedule.rate(step, elapsed))
            index = rng.choices(range(len(steps)), shares)[0] if step % settings.log_every else 0
            result = steps[index]()
            if step == schedule.warmup_steps:
                self.average.restart()
            if step % settings.log_every == 0:
                loss, norm = result.tolist()
                if loss != loss:
                    raise FloatingPointError(f"the loss is not a number at step {step}")
                smooth = loss if not step else 0.9 * smooth + 0.1 * loss
                if step % (10 * settings.log_every) == 0:
                    print(f"dit step {step} {elapsed:.0f} s loss {smooth:.4f} norm {norm:.2f}", flush=True)
            step += 1
        print(f"{step} steps, loss {smooth:.4f}", flush=True)
        return {"steps": step, "seconds": round(clock.elapsed - start), "loss": smooth}

    def averaged(self) -> dict[str, Tensor]:
        """The averaged weights in bfloat16."""
        return {name: v.to(torch.bfloat16) for name, v in zip(self.masters, self.average.values, strict=True)}


def _is_hidden(name: str) -> bool:
    """Whether a matrix lies between hidden features (Muon), not at the edges of the model (AdamW)."""
    return name.startswith(("layers.", "noise_refiner.", "context_refiner.")) and "adaLN" not in name


def _noise_levels(count: int, device: torch.device) -> Tensor:
    """sigma in (0, 1): logit-normal around 0.6, 15 % uniform."""
    sigma = torch.sigmoid(torch.randn(count, device=device) + 0.4)
    is_uniform = torch.rand(count, device=device) < 0.15
    return torch.where(is_uniform, torch.rand(count, device=device), sigma)


def train(shape: Shape, settings: Settings, options: argparse.Namespace) -> None:
    """The whole run."""
    clock, device = Clock(), torch.device(options.device)
    torch.manual_seed(options.seed)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    vae = AutoencoderKL.from_pretrained(options.vae, torch_dtype=dtype).to(device)
    encoder = CaptionEncoder(options.text_encoder, device)
    model = shape.transformer(encoder.width)
    initialise(model)
    history: list[dict[str, float]] = []
    if options.resume:
        state, record = load_parts(options.resume, "dit")
        model.load_state_dict({name: value.float() for name, value in state.items()})
        history = record["runs"]
    trainer, source = Trainer(model, settings, device), PictureSource(options.seed + 1000 * len(history), device)
    chosen, steps = buckets(settings.batch, settings.scenes), []
    for bucket in chosen:
        pool = build_pool(source, vae, encoder, bucket)
        hidden, length = encoder(encoder.tokenize([""]), bucket.slots)
        steps.append(trainer.step_of(bucket, pool, (hidden, length)))
        print(f"{bucket}: {len(pool.latents)} scenes after {clock.elapsed:.0f} s", flush=True)
    del encoder, vae
    figures = trainer.train(steps, [bucket.share for bucket in chosen], clock, options.seed + len(history))
    history.append({**figures, "start": settings.start, "end": settings.end})
    record = {"runs": history, "text_width": model.config.cap_feat_dim, "shape": "toy" if options.toy else "shipped"}
    save_parts(options.out, "dit", trainer.averaged(), record)
    (options.out / "dit.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record), f"saved after {clock.elapsed:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vae", type=Path, required=True)
    parser.add_argument("--text-encoder", type=Path, required=True, help="folder of the chat model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--schedule-start", type=float, default=0.0)
    parser.add_argument("--schedule-end", type=float, default=1.0)
    parser.add_argument("--resume", type=Path, help="folder of the run before")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true", help="slower steps, no minute of compiling")
    parser.add_argument("--toy", action="store_true", help="a toy shape and tiny batches, to try the script on a CPU")
    options = parser.parse_args()
    span = options.schedule_start, options.schedule_end
    settings = Settings(options.seconds, *span, compiles=not options.no_compile)
    if options.toy:
        settings = Settings(options.seconds, *span, batch=4, scenes=24, reserve_s=1.0, log_every=2)
    train(SHAPES["toy" if options.toy else "shipped"], settings, options)


if __name__ == "__main__":
    main()
