"""The judge of generated pictures: which things a picture shows, where, in which colour, and on which background.

A small network, trained by `train_judge.py` on real renders only. It marks the centres of things on a 16 x 16 map (as
CenterNet does: "Objects as Points", arXiv 1904.07850), names thing and colour at each centre, and names the background
from the whole picture. Shapes: N pictures, K x K map cells.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples.train.common.checkpoint import load_parts, save_parts
from samples.train.scenes.colours import BACKGROUND_KINDS, SOLIDS, TINTS
from samples.train.scenes.objects import THINGS
from samples.train.scenes.types import Background

CELLS = 16
COLOURS = ("", *TINTS)
GROUND_KINDS = (*BACKGROUND_KINDS, "vertical stripes", "vertical gradient")
GROUND_NAMES = ("", *SOLIDS)
UNORDERED = ("stripes", "checker")
"""Patterns of two colours with equal parts, where nothing in a picture tells the first colour from the second."""
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
    """The background as the judge names it; of an unsaid colour only that it is plain.

    The colours of patterns without an order come sorted by name, so that both orders have one label.
    """
    kind, first, second = background.kind, background.first, background.second
    if kind in UNORDERED:
        first, second = sorted((first, second))
    turned = f"vertical {kind}" if background.vertical and kind in ("stripes", "gradient") else kind
    return turned, first, second


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


def save_judge(judge: Judge, figures: dict[str, float], folder: Path) -> None:
    """Writes the weights in bfloat16; `figures` on unseen real renders go beside them."""
    state = {name: value.to(torch.bfloat16) for name, value in judge.state_dict().items()}
    save_parts(folder, "judge", state, figures)


def load_judge(folder: Path, device: torch.device) -> Judge:
    judge = Judge()
    judge.load_state_dict({name: value.float() for name, value in load_parts(folder, "judge")[0].items()})
    return judge.to(device).eval().requires_grad_(False)
