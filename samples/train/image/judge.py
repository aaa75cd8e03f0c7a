"""The judge of generated pictures: which things a picture shows, where, in which colour, and on which background.

A small network trained on real renders only: `python -m samples.train.image.judge --out DIR --seconds 60`.
It marks the centres of things on a 16 x 16 map (as CenterNet does: "Objects as Points", arXiv 1904.07850), names thing
and colour at each centre, and names the background from the whole picture. Shapes: N pictures, K x K map cells.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples.train.image.models import NATIVE_SIZE
from samples.train.image.pictures import PictureSource
from samples.train.scenes.colours import BACKGROUND_KINDS, SOLIDS, TINTS
from samples.train.scenes.objects import THINGS
from samples.train.scenes.types import Background, Scene
from samples.train.video.checkpoint import load_parts, save_parts
from samples.train.video.training import Average, CapturedStep, Clock, MixedOptimizer, Schedule

CELLS = 16
COLOURS = ("", *TINTS)
GROUND_KINDS = (*BACKGROUND_KINDS, "vertical stripes", "vertical gradient")
GROUND_NAMES = ("", *SOLIDS)
NUM_SLOTS = 4
_WIDTHS = (32, 64, 128)
_NMS_CELLS, _THRESHOLD = 5, 0.35


class _Residual(nn.Module):
    def __init__(self, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = conv(F.silu(norm(y)))
        return x + y


class Judge(nn.Module):
    """Pictures [N, 3, 128, 128] in [0, 1] -> maps [N, 1 + things + colours, K, K] and background logits [N, ...]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        previous = 3
        for width in _WIDTHS:
            layers += [nn.Conv2d(previous, width, 3, 2, 1), _Residual(width)]
            previous = width
        layers += [_Residual(previous, dilation) for dilation in (2, 1, 2, 1)]
        self.body = nn.Sequential(*layers, nn.GroupNorm(8, previous), nn.SiLU())
        self.maps = nn.Conv2d(previous, 1 + len(THINGS) + len(COLOURS), 1)
        assert self.maps.bias is not None
        nn.init.constant_(self.maps.bias[:1], -3.0)  # centres are rare
        self.squeeze = nn.Conv2d(previous, 32, 1)
        self.ground = nn.Linear(32 * 16, len(GROUND_KINDS) + 2 * len(GROUND_NAMES))

    def forward(self, images_N3HW: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body((images_N3HW - 0.5) * 4)
        pooled = F.adaptive_avg_pool2d(F.silu(self.squeeze(features)), 4)
        return self.maps(features), self.ground(pooled.flatten(1))


@dataclass(frozen=True)
class Sighting:
    """One thing the judge saw: id, likeliest named colour, centre in fractions of the picture, certainty of it."""

    thing_id: int
    tint: str
    center_x: float
    center_y: float
    score: float


@dataclass(frozen=True)
class Verdict:
    """What the judge saw in one picture, strongest thing first; background as (kind, first colour, second colour)."""

    things: tuple[Sighting, ...]
    background: tuple[str, str, str]


def ground_label(background: Background) -> tuple[str, str, str]:
    """The background as the judge names it; of an unsaid colour only that it is plain."""
    kind = background.kind
    turned = f"vertical {kind}" if background.vertical and kind in ("stripes", "gradient") else kind
    return turned, background.first, background.second


@torch.no_grad()
def look(judge: Judge, images_N3HW: Tensor, batch: int = 128) -> list[Verdict]:
    """Verdicts on pictures with bytes or floats in [0, 1]."""
    verdicts = []
    for part in images_N3HW.split(batch):
        pixels = part.float() / 255 if part.dtype == torch.uint8 else part.float()
        maps, ground = judge(pixels)
        verdicts += _read(maps.float().cpu(), ground.float().cpu())
    return verdicts


def _read(maps: Tensor, ground: Tensor) -> list[Verdict]:
    heat = maps[:, 0].sigmoid()
    peaks = (heat == F.max_pool2d(heat, _NMS_CELLS, 1, _NMS_CELLS // 2)) & (heat > _THRESHOLD)
    around = F.avg_pool2d(maps[:, 1:], 3, 1, 1, count_include_pad=False)
    kinds, firsts, seconds = (
        part.argmax(1) for part in ground.split([len(GROUND_KINDS), len(GROUND_NAMES), len(GROUND_NAMES)], 1)
    )
    verdicts = []
    for index in range(len(maps)):
        found = []
        for row, column in peaks[index].nonzero().tolist():
            logits = around[index, :, row, column]
            tint = int(logits[len(THINGS) + 1 :].argmax()) + 1  # never "no colour": it is asked only where one is named
            place = (column + 0.5) / CELLS, (row + 0.5) / CELLS
            thing_id = int(logits[: len(THINGS)].argmax())
            found.append(Sighting(thing_id, COLOURS[tint], *place, heat[index, row, column].item()))
        names = GROUND_KINDS[kinds[index]], GROUND_NAMES[firsts[index]], GROUND_NAMES[seconds[index]]
        verdicts.append(Verdict(tuple(sorted(found, key=lambda s: -s.score)), names))
    return verdicts


@dataclass(frozen=True)
class Targets:
    """Labels of N pictures; thing -1 is an empty slot."""

    things_NS: Tensor
    tints_NS: Tensor
    centers_NS2: Tensor
    sizes_NS: Tensor
    ground_N3: Tensor

    @staticmethod
    def of(scenes: list[Scene], device: torch.device) -> "Targets":
        rows, grounds = [], []
        for scene in scenes:
            slots = [(i.thing_id, COLOURS.index(i.tint), i.center_x, i.center_y, i.size) for i in scene.items]
            rows.append(slots + [(-1, 0, 9.0, 9.0, 0.1)] * (NUM_SLOTS - len(slots)))
            kind, first, second = ground_label(scene.background)
            grounds.append((GROUND_KINDS.index(kind), GROUND_NAMES.index(first), GROUND_NAMES.index(second)))
        table = torch.tensor(rows, device=device)
        return Targets(
            table[..., 0].long(),
            table[..., 1].long(),
            table[..., 2:4],
            table[..., 4],
            torch.tensor(grounds, device=device),
        )

    def __getitem__(self, rows: Tensor) -> "Targets":
        return Targets(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def copy_(self, first: int, other: "Targets") -> None:
        """Overwrites rows from `first` on."""
        for name in self.__dataclass_fields__:
            value = getattr(other, name)
            getattr(self, name)[first : first + len(value)] = value


def judge_loss(maps: Tensor, ground: Tensor, targets: Targets) -> Tensor:
    """Focal loss of the centre map; cross entropies of thing and colour near centres and of the background."""
    cells = (torch.arange(CELLS, device=maps.device) + 0.5) / CELLS
    dx = cells[None, None, None, :] - targets.centers_NS2[..., 0, None, None]
    dy = cells[None, None, :, None] - targets.centers_NS2[..., 1, None, None]
    width = (0.1 * targets.sizes_NS).clamp(min=0.6 / CELLS)[..., None, None]
    nearness_NSKK = torch.exp(-(dx**2 + dy**2) / (2 * width**2))
    goal, owner = nearness_NSKK.max(1)
    is_centre = ((dx.abs() < 0.5 / CELLS) & (dy.abs() < 0.5 / CELLS)).any(1).float()
    p = maps[:, 0].sigmoid().clamp(1e-4, 1 - 1e-4)
    focal = -is_centre * (1 - p) ** 2 * p.log() - (1 - is_centre) * (1 - goal) ** 4 * p**2 * (1 - p).log()
    loss = focal.sum((1, 2)).mean()
    weight = ((dx.abs() < 1.6 / CELLS) & (dy.abs() < 1.6 / CELLS)).any(1).float()  # the cells that `_read` averages
    weight = weight / weight.sum().clamp(min=1)
    for logits, labels in (
        (maps[:, 1 : 1 + len(THINGS)], targets.things_NS),
        (maps[:, 1 + len(THINGS) :], targets.tints_NS),
    ):
        chosen = labels.clamp(min=0).gather(1, owner.flatten(1)).view_as(owner)
        loss = loss + (F.cross_entropy(logits, chosen, reduction="none") * weight).sum()
    parts = ground.split([len(GROUND_KINDS), len(GROUND_NAMES), len(GROUND_NAMES)], 1)
    for index, logits in enumerate(parts):
        loss = loss + 0.5 * F.cross_entropy(logits, targets.ground_N3[:, index])
    return loss


def _roughened(images_N3HW: Tensor) -> Tensor:
    """Blur and noise of random strength, so that the judge does not lean on what an autoencoder loses."""
    blurred = F.avg_pool2d(F.pad(images_N3HW, (1, 1, 1, 1), mode="replicate"), 3, 1)
    share = torch.rand(len(images_N3HW), 1, 1, 1, device=images_N3HW.device)
    noise = torch.randn_like(images_N3HW) * 0.04 * torch.rand_like(share)
    return images_N3HW + share * (blurred - images_N3HW) + noise


def train_judge(
    seconds: float, device: torch.device, seed: int, pool: int = 50_000, batch: int = 256, rate: float = 2e-3
) -> Judge:
    """A judge trained on random renders for that long, rendering included."""
    clock = Clock()
    torch.manual_seed(seed)
    judge = Judge().to(device)
    source = PictureSource(seed, device)
    scenes = source.scenes(pool)
    images, labels = source.render(scenes, NATIVE_SIZE, NATIVE_SIZE), Targets.of(scenes, device)
    named = dict(judge.named_parameters())
    matrices = [p for name, p in named.items() if p.ndim == 4 and name.startswith("body") and p.shape[1] > 3]
    chosen = {id(p) for p in matrices}
    optimizer = MixedOptimizer(matrices, [p for p in named.values() if id(p) not in chosen], weight_decay=0.01)
    average = Average(optimizer.parameters, 0.998)
    compute = torch.bfloat16 if device.type == "cuda" else torch.float32

    def run() -> Tensor:
        rows = torch.randint(pool, (batch,), device=device)
        pixels = _roughened(images[rows].float() / 255)
        weights = {name: p.to(compute) for name, p in named.items()}
        maps, ground = torch.func.functional_call(judge, weights, (pixels.to(compute),))
        loss = judge_loss(maps.float(), ground.float(), labels[rows])
        optimizer.step(torch.autograd.grad(loss, optimizer.parameters))
        average.update()
        return loss.detach()

    captured, start, step = CapturedStep(run, device), clock.elapsed, 0
    schedule = Schedule(seconds - start, rate, 100, 0.6)
    while (elapsed := clock.elapsed - start) < schedule.seconds:
        optimizer.rate.fill_(schedule.rate(step, elapsed))
        loss = captured()
        if step == schedule.warmup_steps:
            average.restart()
        if step % 100 == 0:
            value = loss.item()
            if step % 500 == 0:
                print(f"judge step {step} {elapsed:.0f} s loss {value:.3f}", flush=True)
        step += 1
        if step % 200 == 0 and pool > 4000:
            fresh, first = source.scenes(2000), (step // 200 * 2000) % (pool - 2000)
            images[first : first + 2000] = source.render(fresh, NATIVE_SIZE, NATIVE_SIZE)
            labels.copy_(first, Targets.of(fresh, device))
    print(f"judge: {step} steps", flush=True)
    with torch.no_grad():
        torch._foreach_copy_(optimizer.parameters, average.values)
    return judge.eval().requires_grad_(False)


def save_judge(judge: Judge, folder: Path) -> None:
    state = {name: value.to(torch.bfloat16) for name, value in judge.state_dict().items()}
    save_parts(folder, "judge", state, {})


def load_judge(folder: Path, device: torch.device) -> Judge:
    judge = Judge()
    judge.load_state_dict({name: value.float() for name, value in load_parts(folder, "judge")[0].items()})
    return judge.to(device).eval().requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--toy", action="store_true", help="a tiny pool and batch, to try the script on a CPU")
    options = parser.parse_args()
    sizes = {"pool": 64, "batch": 4} if options.toy else {}
    save_judge(train_judge(options.seconds, torch.device(options.device), options.seed, **sizes), options.out)


if __name__ == "__main__":
    main()
