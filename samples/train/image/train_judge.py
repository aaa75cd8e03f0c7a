"""Trains the judge: `python -m samples.train.image.train_judge --out DIR --seconds 150`.

It sees real renders only, never a generated picture; blur and noise are added so that softness alone does not mislead
it. Its figures on unseen real renders are printed and stored in the record beside the weights.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from samples.train.common.lessons import fit
from samples.train.common.training import Average, Clock, MixedOptimizer
from samples.train.image.judge import CELLS, COLOURS, GROUND_KINDS, GROUND_NAMES, Judge, ground_label, look, save_judge
from samples.train.image.models import NATIVE_SIZE
from samples.train.image.pictures import HELD_OUT_SEED, PictureSource
from samples.train.image.prompts import tuning_prompts
from samples.train.image.scores import score
from samples.train.scenes.objects import THINGS
from samples.train.scenes.types import Scene

NUM_SLOTS = 4


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


class _Lessons:
    """Rendered pictures and their labels on the device."""

    def __init__(self, source: PictureSource, count: int) -> None:
        self._source, self._next = source, 0
        scenes = source.scenes(count)
        self.images = source.render(scenes, NATIVE_SIZE, NATIVE_SIZE)
        self.labels = Targets.of(scenes, source.device)

    def renew(self, count: int) -> None:
        """New pictures over the oldest."""
        first = self._next if self._next + count <= len(self.images) else 0
        fresh = self._source.scenes(count)
        self.images[first : first + count] = self._source.render(fresh, NATIVE_SIZE, NATIVE_SIZE)
        self.labels.copy_(first, Targets.of(fresh, self._source.device))
        self._next = first + count

    def draw(self, batch: int) -> tuple[Tensor, Targets]:
        rows = torch.randint(len(self.images), (batch,), device=self.images.device)
        return self.images[rows].float() / 255, self.labels[rows]


def train_judge(seconds: float, device: torch.device, seed: int, pool: int = 50_000, batch: int = 256) -> Judge:
    """A judge trained on random renders for that long, rendering included."""
    clock = Clock()
    torch.manual_seed(seed)
    lessons, judge = _Lessons(PictureSource(seed, device), pool), Judge().to(device)
    named = dict(judge.named_parameters())
    matrices = [p for name, p in named.items() if p.ndim == 4 and name.startswith("body") and p.shape[1] > 3]
    chosen = {id(p) for p in matrices}
    optimizer = MixedOptimizer(matrices, [p for p in named.values() if id(p) not in chosen], weight_decay=0.01)
    average = Average(optimizer.parameters, 0.998)
    compute = torch.bfloat16 if device.type == "cuda" else torch.float32

    def run() -> Tensor:
        pixels, labels = lessons.draw(batch)
        weights = {name: p.to(compute) for name, p in named.items()}
        maps, ground = torch.func.functional_call(judge, weights, (_roughened(pixels).to(compute),))
        loss = judge_loss(maps.float(), ground.float(), labels)
        optimizer.step(torch.autograd.grad(loss, optimizer.parameters))
        average.update()
        return loss.detach()

    renewed = min(2000, pool // 2)
    left = seconds - clock.elapsed
    fit(run, optimizer, left, device, average=average, renew=lambda: lessons.renew(renewed), renew_every=200)
    return judge.eval().requires_grad_(False)


def figures_on_renders(judge: Judge, device: torch.device, limit: int | None = None) -> dict[str, float]:
    """Percent right for each ability on renders of the tuning prompts, which no evaluation uses."""
    prompts = tuning_prompts()[:limit]
    images = PictureSource(HELD_OUT_SEED, device).render([p.scene for p in prompts], NATIVE_SIZE, NATIVE_SIZE)
    table = score(prompts, look(judge, images))
    return {name: row["percent"] for name, row in table.items() if isinstance(row, dict)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--toy", action="store_true", help="a tiny pool and batch, to try the script on a CPU")
    options = parser.parse_args()
    sizes = {"pool": 64, "batch": 4} if options.toy else {}
    device = torch.device(options.device)
    judge = train_judge(options.seconds, device, options.seed, **sizes)
    figures = figures_on_renders(judge, device, 8 if options.toy else None)
    print(json.dumps(figures, indent=1), flush=True)
    save_judge(judge, figures, options.out)


if __name__ == "__main__":
    main()
