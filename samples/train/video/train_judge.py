"""Trains the judge: `python -m samples.train.video.train_judge --out DIR --seconds 60`.

It sees real renders only, never a generated clip; blur and noise are added so that softness alone does not mislead it.
Its figures on unseen real renders are printed and stored in the record beside the weights.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from samples.train.common.lessons import fit
from samples.train.common.training import Average, Clock, MixedOptimizer
from samples.train.scenes.motion import trajectory
from samples.train.scenes.types import Scene
from samples.train.video.clips import SHIPPED_FORMAT, ClipSource, single_scenes
from samples.train.video.judge import CLASSES, Judge, save_judge
from samples.train.video.measures import judge_figures


def true_places(scenes: list[Scene], frames: int) -> Tensor:
    """[N, T, 5] targets of `Judge.place`."""
    rows = []
    for scene in scenes:
        item = scene.items[0]
        for index in range(frames):
            dx, dy, factor, degrees = trajectory(item.motion, index / (frames - 1))
            angle = torch.deg2rad(torch.tensor(item.angle + degrees))
            size = torch.tensor(item.size * factor)
            rows.append(
                [item.center_x + dx, item.center_y + dy, size.log().item(), angle.sin().item(), angle.cos().item()]
            )
    places: Tensor = torch.tensor(rows).unflatten(0, (-1, frames))
    return places


class _Lessons:
    """Rendered clips and their answers on the device."""

    def __init__(self, source: ClipSource, count: int) -> None:
        self._source, self._next = source, 0
        self.clips = torch.zeros(count, SHIPPED_FORMAT.frames, 3, 96, 96, dtype=torch.uint8, device=source.device)
        self.classes = torch.zeros(count, dtype=torch.long, device=source.device)
        self.places = torch.zeros(count, SHIPPED_FORMAT.frames, 5, device=source.device)
        while self.replace(256):
            pass

    def replace(self, count: int) -> int:
        """New clips over the oldest; 0 when the end was just reached."""
        count = min(count, len(self.clips) - self._next)
        if count == 0:
            self._next = 0
            return 0
        scenes, rows = single_scenes(self._source, count), slice(self._next, self._next + count)
        index = {thing: position for position, thing in enumerate(CLASSES)}
        self.clips[rows] = self._source.render(scenes)
        self.classes[rows] = torch.tensor([index[s.items[0].thing_id] for s in scenes], device=self.clips.device)
        self.places[rows] = true_places(scenes, SHIPPED_FORMAT.frames).to(self.clips.device)
        self._next += count
        return count

    def draw(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        device = self.clips.device
        row = torch.randint(len(self.clips), (batch,), device=device)
        frame = torch.randint(self.clips.shape[1], (batch,), device=device)
        return self.clips[row, frame].float() / 255, self.classes[row], self.places[row, frame]


def spoil(frames_N3HW: Tensor) -> Tensor:
    """A random mixture with a 3x3 blur, and noise up to 0.04."""
    share, noise = (torch.rand(len(frames_N3HW), 1, 1, 1, device=frames_N3HW.device) for _ in range(2))
    blurred = F.avg_pool2d(F.pad(frames_N3HW, (1, 1, 1, 1), mode="replicate"), 3, 1)
    return frames_N3HW.lerp(blurred, share) + 0.04 * noise * torch.randn_like(frames_N3HW)


def judge_loss(judge: Judge, frames: Tensor, classes: Tensor, places: Tensor) -> Tensor:
    logits, got = judge(frames)
    direction = F.normalize(got[:, 3:].float(), dim=1)
    turned = 1 - (direction * places[:, 3:]).sum(1).mean()
    centre = F.smooth_l1_loss(got[:, :2].float(), places[:, :2], beta=0.02)
    size = F.smooth_l1_loss(got[:, 2].float(), places[:, 2], beta=0.05)
    return F.cross_entropy(logits.float(), classes) + 5 * centre + 2 * size + turned


def train_judge(seconds: float, device: torch.device, seed: int = 3, clips: int = 6000, batch: int = 512) -> Judge:
    clock = Clock()
    torch.manual_seed(seed)
    lessons, judge = _Lessons(ClipSource(seed, device), clips), Judge().to(device)
    matrices = [p for p in judge.parameters() if p.ndim == 4]
    optimizer = MixedOptimizer(matrices, [p for p in judge.parameters() if p.ndim != 4], betas=(0.9, 0.99))

    average = Average(optimizer.parameters, 0.998)

    def run() -> Tensor:
        frames, classes, places = lessons.draw(batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False):
            loss = judge_loss(judge, spoil(frames), classes, places)
        optimizer.step(torch.autograd.grad(loss, optimizer.parameters))
        average.update()
        return loss.detach()

    left = seconds - clock.elapsed
    fit(run, optimizer, left, device, average=average, renew=lambda: lessons.replace(128), renew_every=100)
    return judge.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--toy", action="store_true", help="tiny batches, to try the script on a CPU")
    options = parser.parse_args()
    device = torch.device(options.device)
    sizes = {"clips": 16, "batch": 4} if options.toy else {}
    judge = train_judge(options.seconds, device, **sizes)
    figures = judge_figures(judge, device, 4 if options.toy else 1024)
    print(json.dumps(figures, indent=1), flush=True)
    save_judge(judge, figures, options.out)


if __name__ == "__main__":
    main()
