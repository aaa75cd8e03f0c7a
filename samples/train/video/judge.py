"""The judge of generated clips: which thing a frame shows, where, how large and how it is turned.

A small convolutional network, trained by `train_judge.py` on real renders of single things only. Tracks of its answers
are what `measures.py` compares with the motions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples.train.common.checkpoint import load_parts, save_parts
from samples.train.scenes.objects import VIDEO_IDS
from samples.train.video.clips import SHIPPED_FORMAT

CLASSES = tuple(VIDEO_IDS)
"""THINGS index of each class."""


@dataclass(frozen=True)
class Track:
    """What the judge saw in N clips of T frames: log probabilities, centre and size in fractions, degrees clockwise."""

    classes_NTK: Tensor
    x_NT: Tensor
    y_NT: Tensor
    size_NT: Tensor
    degrees_NT: Tensor

    @property
    def thing_N(self) -> Tensor:
        """Class of each clip: the probabilities of all frames multiplied."""
        return self.classes_NTK.mean(1).argmax(-1)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = conv(F.silu(norm(y)))
        return x + y


class Judge(nn.Module):
    """Frames [N, 3, 96, 96] in [0, 1] -> class logits [N, K] and (x, y, log size, sine, cosine) [N, 5]."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 192)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        previous = 3
        for width in widths:
            layers += [nn.Conv2d(previous, width, 3, 2, 1), _Residual(width), _Residual(width)]
            previous = width
        self.body = nn.Sequential(*layers, nn.GroupNorm(8, previous), nn.SiLU())
        self.squeeze = nn.Conv2d(previous, 32, 1)
        side = SHIPPED_FORMAT.height // 2 ** len(widths)
        self.classes = nn.Linear(previous, len(CLASSES))
        self.place = nn.Linear(32 * side * side, 5)

    def forward(self, frames_N3HW: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body((frames_N3HW - 0.5) * 4)
        return self.classes(features.mean((2, 3))), self.place(self.squeeze(features).flatten(1))

    @torch.no_grad()
    def track(self, clips_NTCHW: Tensor, batch: int = 64) -> Track:
        """Follows the thing through clips with pixels in [0, 1]."""
        logits, places = [], []
        for part in clips_NTCHW.split(batch):
            classes, place = self(part.flatten(0, 1))
            logits.append(classes.log_softmax(-1).unflatten(0, part.shape[:2]))
            places.append(place.unflatten(0, part.shape[:2]))
        x, y, log_size, sine, cosine = torch.cat(places).unbind(-1)
        return Track(torch.cat(logits), x, y, log_size.exp(), torch.rad2deg(torch.atan2(sine, cosine)))


def save_judge(judge: Judge, figures: dict[str, float], directory: Path) -> None:
    save_parts(directory, "judge", judge.state_dict(), figures)


def load_judge(directory: Path, device: torch.device) -> tuple[Judge, dict[str, float]]:
    state, figures = load_parts(directory, "judge")
    judge = Judge()
    judge.load_state_dict(state)
    return judge.to(device).eval(), figures
