"""Draws scenes with torch, thousands at once on a GPU, a few on a CPU: stills of any size, clips of any length.

    renderer = Renderer(load_sprites(), torch.device("cuda"))
    images = renderer.stills(pack(scenes), 128, 128)        # [N, 3, 128, 128] in [0, 1]
    clips = renderer.clips(pack(clip_scenes), 17, 96, 96)   # [N, 3, 17, 96, 96] in [0, 1]

Things are sampled from premultiplied sprites at twice the resolution and averaged down. Shapes: N scenes, S item slots,
M drawn items, F frames, H x W pixels, T texture pixels. Knows no captions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from samples.train.scenes.backgrounds import Backgrounds, paint_backgrounds
from samples.train.scenes.colours import BACKGROUND_KINDS, STYLES, TINTS
from samples.train.scenes.motion import MOTIONS, trajectory
from samples.train.scenes.types import Scene

NUM_SLOTS = 4
SUPERSAMPLING = 2
PIXEL_ART_BLOCKS = 32
"""Blocks along the short side in the "pixel art" style."""

_LUMINANCE = (0.299, 0.587, 0.114)
_TINT_NAMES, _EMPTY_SLOT = tuple(TINTS), (-1, 0.0, 0.0, 1.0, 0.0, -1, -1)


@dataclass(frozen=True)
class PackedScenes:
    """N scenes as tensors. ids, tints, motions are -1 where a slot is empty, a thing untinted, a still."""

    backgrounds: Backgrounds
    ids_NS: Tensor
    centers_NS2: Tensor
    sizes_NS: Tensor
    degrees_NS: Tensor
    tints_NS: Tensor
    motions_NS: Tensor
    styles_N: Tensor

    def __getitem__(self, rows: Tensor | slice) -> "PackedScenes":
        return PackedScenes(*(getattr(self, field.name)[rows] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.styles_N)

    def to(self, device: torch.device) -> "PackedScenes":
        """The same scenes on another device."""
        names = [field.name for field in fields(Backgrounds)]
        backgrounds = Backgrounds(*(getattr(self.backgrounds, name).to(device) for name in names))
        rest = (getattr(self, field.name).to(device) for field in fields(self)[1:])
        return PackedScenes(backgrounds, *rest)


def _pack_backgrounds(scenes: Sequence[Scene]) -> Backgrounds:
    rows = [scene.background for scene in scenes]
    kinds = {kind: index for index, kind in enumerate(BACKGROUND_KINDS)}
    numbers = [(kinds[b.kind], *b.rgb_first, *b.rgb_second, b.phase, b.period, b.vertical) for b in rows]
    table = torch.from_numpy(np.array(numbers, dtype=np.float32).reshape(len(rows), 10))
    return Backgrounds(
        kind_N=table[:, 0].long(),
        first_N3=table[:, 1:4] / 255,
        second_N3=table[:, 4:7] / 255,
        phase_N=table[:, 7],
        period_N=table[:, 8],
        vertical_N=table[:, 9] > 0,
    )


def pack(scenes: Sequence[Scene]) -> PackedScenes:
    """Scenes as CPU tensors, ready for `.to(device)`."""
    tints = {name: index for index, name in enumerate(_TINT_NAMES)} | {"": -1}
    motions = {name: index for index, name in enumerate(MOTIONS)} | {"": -1}
    rows = []
    for scene in scenes:
        slots = [
            (i.thing_id, i.center_x, i.center_y, i.size, i.angle, tints[i.tint], motions[i.motion]) for i in scene.items
        ]
        rows.append(slots + [_EMPTY_SLOT] * (NUM_SLOTS - len(slots)))
    table = torch.from_numpy(np.array(rows, dtype=np.float32).reshape(len(rows), NUM_SLOTS, 7))
    styles = {name: index for index, name in enumerate(STYLES)} | {"": -1}
    return PackedScenes(
        backgrounds=_pack_backgrounds(scenes),
        ids_NS=table[..., 0].long(),
        centers_NS2=table[..., 1:3],
        sizes_NS=table[..., 3],
        degrees_NS=table[..., 4],
        tints_NS=table[..., 5].long(),
        motions_NS=table[..., 6].long(),
        styles_N=torch.tensor([styles[scene.style] for scene in scenes], dtype=torch.long),
    )


class Renderer:
    """Holds the sprites on a device: premultiplied, at three sharpnesses (for drawing them 1x, 2x, 4x smaller)."""

    def __init__(self, sprites: np.ndarray, device: torch.device) -> None:
        straight = torch.from_numpy(sprites).to(device).permute(0, 3, 1, 2).float() / 255
        alpha = straight[:, 3:]
        sharp = torch.cat([straight[:, :3] * alpha, alpha], dim=1)
        blurred = [functional.avg_pool2d(functional.pad(sharp, (k // 2, k - 1 - k // 2) * 2), k, 1) for k in (2, 4)]
        self.device = device
        self.textures_L4TT = torch.stack([sharp, *blurred], dim=1)  # [things, levels, 4, T, T]
        self.medians = torch.stack([_median_luminance(texture) for texture in sharp])
        self.tints = torch.tensor(list(TINTS.values()), device=device, dtype=torch.float32) / 255

    def stills(self, scenes: PackedScenes, height: int, width: int) -> Tensor:
        """[N, 3, H, W] in [0, 1]; height and width at least 32."""
        scenes = scenes.to(self.device)
        fine = height * SUPERSAMPLING, width * SUPERSAMPLING
        canvas = paint_backgrounds(scenes.backgrounds, *fine)
        self._draw_items(canvas, scenes)
        return _style(functional.avg_pool2d(canvas, SUPERSAMPLING), scenes.styles_N)

    def clips(self, scenes: PackedScenes, num_frames: int, height: int, width: int) -> Tensor:
        """[N, 3, F, H, W] in [0, 1]: the whole motion, whatever the number of frames (at least 2)."""
        scenes = scenes.to(self.device)
        fine = height * SUPERSAMPLING, width * SUPERSAMPLING
        ground = paint_backgrounds(scenes.backgrounds, *fine)
        frames = []
        for index in range(num_frames):
            canvas = ground.clone()
            self._draw_items(canvas, _at_time(scenes, index / (num_frames - 1)))
            frames.append(_style(functional.avg_pool2d(canvas, SUPERSAMPLING), scenes.styles_N))
        return torch.stack(frames, dim=2)

    def _draw_items(self, canvas_N3HW: Tensor, scenes: PackedScenes) -> None:
        for slot in range(NUM_SLOTS):
            rows = (scenes.ids_NS[:, slot] >= 0).nonzero().flatten()
            if len(rows):
                self._draw_slot(canvas_N3HW, scenes, rows, slot)

    def _draw_slot(self, canvas_N3HW: Tensor, scenes: PackedScenes, rows_M: Tensor, slot: int) -> None:
        height, width = canvas_N3HW.shape[2:]
        sizes_M = scenes.sizes_NS[rows_M, slot]
        texture_side = self.textures_L4TT.shape[-1]
        shrinking_M = texture_side / (sizes_M * min(height, width))
        levels_M = shrinking_M.log2().round().clamp(0, 2).long()
        texture_M4TT = self._textures(scenes.ids_NS[rows_M, slot], levels_M, scenes.tints_NS[rows_M, slot])
        centers_M2, degrees_M = scenes.centers_NS2[rows_M, slot], scenes.degrees_NS[rows_M, slot]
        theta_M23 = _placement(centers_M2, sizes_M, degrees_M, height, width)
        grid = functional.affine_grid(theta_M23, [len(rows_M), 4, height, width], align_corners=False)
        drawn_M4HW = functional.grid_sample(texture_M4TT, grid, align_corners=False)
        canvas_N3HW[rows_M] = canvas_N3HW[rows_M] * (1 - drawn_M4HW[:, 3:]) + drawn_M4HW[:, :3]

    def _textures(self, ids_M: Tensor, levels_M: Tensor, tints_M: Tensor) -> Tensor:
        texture_M4TT = self.textures_L4TT[ids_M, levels_M]
        rows = (tints_M >= 0).nonzero().flatten()
        if len(rows):
            texture_M4TT[rows] = _tinted(texture_M4TT[rows], self.medians[ids_M[rows]], self.tints[tints_M[rows]])
        return texture_M4TT


def _luminance(colour_N3HW: Tensor) -> Tensor:
    weights = torch.tensor(_LUMINANCE, device=colour_N3HW.device)[:, None, None]
    return (colour_N3HW * weights).sum(dim=1, keepdim=True)


def _median_luminance(texture_4TT: Tensor) -> Tensor:
    is_solid = texture_4TT[3] > 0.9
    return _luminance(texture_4TT[None, :3])[0, 0][is_solid].median().clamp(0.1, 0.97)


def _tinted(texture_M4TT: Tensor, median_M: Tensor, tint_M3: Tensor) -> Tensor:
    """The thing in one colour: its median luminance becomes the tint, darker parts darker, lighter parts lighter."""
    alpha = texture_M4TT[:, 3:]
    light = _luminance(texture_M4TT[:, :3]) / alpha.clamp(min=1e-3)
    median, tint = median_M[:, None, None, None], tint_M3[:, :, None, None]
    darker = tint * (0.25 + 0.75 * (light / median).clamp(0, 1))
    lighter = 0.8 * (1 - tint) * ((light - median) / (1 - median)).clamp(0, 1)
    return torch.cat([(darker + lighter).clamp(0, 1) * alpha, alpha], dim=1)


def _placement(centers_M2: Tensor, sizes_M: Tensor, degrees_M: Tensor, height: int, width: int) -> Tensor:
    """[M, 2, 3] maps from canvas to texture, both in the [-1, 1] coordinates of affine_grid."""
    short = min(height, width)
    half = torch.tensor([width / short, height / short], device=sizes_M.device) / 2  # the canvas, in short sides
    offset_M2 = half - centers_M2 * 2 * half
    angle = torch.deg2rad(degrees_M)
    cos, sin = torch.cos(angle), torch.sin(angle)
    turn_M22 = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    turn_M22 = turn_M22 * (2 / sizes_M)[:, None, None]
    return torch.cat([turn_M22 * half, turn_M22 @ offset_M2[:, :, None]], dim=2)


def _at_time(scenes: PackedScenes, u: float) -> PackedScenes:
    """The scenes with every item moved to where its motion has it at time u in [0, 1]."""
    table = [(0.0, 0.0, 1.0, 0.0), *(trajectory(motion, u) for motion in MOTIONS)]
    state_NS4 = torch.tensor(table, device=scenes.ids_NS.device)[scenes.motions_NS + 1]
    return replace(
        scenes,
        centers_NS2=scenes.centers_NS2 + state_NS4[..., :2],
        sizes_NS=scenes.sizes_NS * state_NS4[..., 2],
        degrees_NS=scenes.degrees_NS + state_NS4[..., 3],
    )


def _style(image_N3HW: Tensor, styles_N: Tensor) -> Tensor:
    grey = (styles_N == STYLES.index("black and white")).nonzero().flatten()
    if len(grey):
        image_N3HW[grey] = _luminance(image_N3HW[grey]).expand(-1, 3, -1, -1)
    blocky = (styles_N == STYLES.index("pixel art")).nonzero().flatten()
    if len(blocky):
        block = max(1, min(image_N3HW.shape[2:]) // PIXEL_ART_BLOCKS)
        coarse = functional.interpolate(image_N3HW[blocky], scale_factor=1 / block, mode="area")
        image_N3HW[blocky] = functional.interpolate(coarse, size=image_N3HW.shape[2:], mode="nearest")
    return image_N3HW
