"""Paints backgrounds in torch, many at once: one function per kind, each a formula over the picture's coordinates.

Knows nothing of things or captions. Shapes: N pictures, H x W pixels; x_HW, y_HW are fractions of the picture, u_HW,
v_HW the same points in units of the short side (so that textures keep their shape in non-square pictures).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from samples.train.scenes.colours import BACKGROUND_KINDS


@dataclass(frozen=True)
class Coordinates:
    """Pixel centres of an H x W canvas; see the module's legend."""

    x_HW: Tensor
    y_HW: Tensor
    u_HW: Tensor
    v_HW: Tensor

    @staticmethod
    def of(height: int, width: int, device: torch.device) -> "Coordinates":
        y, x = ((torch.arange(n, device=device, dtype=torch.float32) + 0.5) / n for n in (height, width))
        y_HW, x_HW = torch.meshgrid(y, x, indexing="ij")
        short = min(height, width)
        return Coordinates(x_HW, y_HW, x_HW * (width / short), y_HW * (height / short))


@dataclass(frozen=True)
class Backgrounds:
    """N backgrounds as tensors: kind indexes BACKGROUND_KINDS, colours are in [0, 1], the rest as in Background."""

    kind_N: Tensor
    first_N3: Tensor
    second_N3: Tensor
    phase_N: Tensor
    period_N: Tensor
    vertical_N: Tensor

    def __getitem__(self, rows: Tensor | slice) -> "Backgrounds":
        return Backgrounds(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def _column(values_N: Tensor) -> Tensor:
    return values_N[:, None, None]


def _mix(share_NHW: Tensor, low_N3: Tensor, high_N3: Tensor) -> Tensor:
    """[N, 3, H, W]: low where share is 0, high where it is 1."""
    share = share_NHW.clamp(0, 1)[:, None]
    return low_N3[:, :, None, None] * (1 - share) + high_N3[:, :, None, None] * share


def _rgb(like: Tensor, *values: int) -> Tensor:
    return (torch.tensor(values, device=like.device, dtype=torch.float32) / 255).expand(len(like), 3)


def _smooth(low: float, high: float, value: Tensor) -> Tensor:
    t = ((value - low) / (high - low)).clamp(0, 1)
    return t * t * (3 - 2 * t)


def _specks(grid: Coordinates, seed_N: Tensor, cells: float, radius: tuple[float, float], share: float) -> Tensor:
    """[N, H, W] in [0, 1]: one soft disc in `share` of the cells of a grid with `cells` cells per short side.

    Positions come from an integer hash of cell and seed, so they are the same on every device and for every size.
    """
    u, v = grid.u_HW * cells, grid.v_HW * cells
    column, row = u.floor().long(), v.floor().long()
    seed = (_column(seed_N) * 4096).long()
    mixed = (column * 73856093) ^ (row * 19349663) ^ (seed * 83492791)
    mixed = ((mixed & 0x7FFFFFFF) * 1103515245 + 12345) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 1274126177) & 0x7FFFFFFF
    a, b, c, d = ((mixed >> shift & 127).float() / 127 for shift in (3, 10, 17, 24))
    size = radius[0] + (radius[1] - radius[0]) * c
    x, y = size + (1 - 2 * size) * a, size + (1 - 2 * size) * b
    distance = ((u - column - x) ** 2 + (v - row - y) ** 2).sqrt()
    return (1 - _smooth(0.7, 1.0, distance / size)) * (d < share)


def _plain(b: Backgrounds, grid: Coordinates) -> Tensor:
    return b.first_N3[:, :, None, None].expand(-1, -1, *grid.x_HW.shape)


def _gradient(b: Backgrounds, grid: Coordinates) -> Tensor:
    along = torch.where(_column(b.vertical_N), grid.x_HW, grid.y_HW)
    return _mix(along, b.first_N3, b.second_N3)


def _glow(b: Backgrounds, grid: Coordinates) -> Tensor:
    distance = ((grid.x_HW - 0.5) ** 2 + (grid.y_HW - 0.5) ** 2).sqrt()
    return _mix(_smooth(0.2, 0.62, distance).expand(len(b.kind_N), -1, -1), b.first_N3, b.second_N3)


def _stripes(b: Backgrounds, grid: Coordinates) -> Tensor:
    along = torch.where(_column(b.vertical_N), grid.u_HW, grid.v_HW)
    is_second = (along / _column(b.period_N) + _column(b.phase_N)) % 1.0 >= 0.5
    return _mix(is_second.float(), b.first_N3, b.second_N3)


def _checker(b: Backgrounds, grid: Coordinates) -> Tensor:
    period = _column(b.period_N) * 0.75
    cells = (grid.u_HW / period + _column(b.phase_N)).floor() + (grid.v_HW / period).floor()
    return _mix(cells % 2, b.first_N3, b.second_N3)


def _dots(b: Backgrounds, grid: Coordinates) -> Tensor:
    period = _column(b.period_N)
    row = (grid.v_HW / period).floor()
    across = (grid.u_HW / period + _column(b.phase_N) + 0.5 * (row % 2)) % 1.0 - 0.5
    down = (grid.v_HW / period) % 1.0 - 0.5
    is_ground = (across**2 + down**2) > 0.31**2
    return _mix(is_ground.float(), b.first_N3, b.second_N3)


def _horizon(b: Backgrounds, grid: Coordinates, at: float, waves: float) -> Tensor:
    """[N, H, W] 0 above and 1 below a line at about `at`, with hills of height `waves`."""
    hills = torch.sin(2 * math.pi * (grid.x_HW * 1.2 + _column(b.phase_N))) * waves
    return (grid.y_HW > at + hills).float()


def _over(share_NHW: Tensor, below: Tensor, above: Tensor) -> Tensor:
    return below * (1 - share_NHW[:, None]) + above * share_NHW[:, None]


def _fade(b: Backgrounds, grid: Coordinates, top: tuple[int, ...], bottom: tuple[int, ...]) -> Tensor:
    like = b.phase_N
    return _mix(grid.y_HW.expand(len(like), -1, -1), _rgb(like, *top), _rgb(like, *bottom))


def _grass(b: Backgrounds, grid: Coordinates) -> Tensor:
    ground = _fade(b, grid, (150, 215, 90), (50, 135, 40))
    return _over(_horizon(b, grid, 0.55, 0.03), _fade(b, grid, (120, 190, 245), (205, 232, 252)), ground)


def _beach(b: Backgrounds, grid: Coordinates) -> Tensor:
    sky, sea = _fade(b, grid, (130, 200, 248), (215, 238, 252)), _fade(b, grid, (20, 110, 190), (40, 190, 210))
    sea = _over(_horizon(b, grid, 0.42, 0.0), sky, sea)
    return _over(_horizon(b, grid, 0.66, 0.02), sea, _fade(b, grid, (246, 226, 166), (232, 202, 130)))


def _snow(b: Backgrounds, grid: Coordinates) -> Tensor:
    sky = _fade(b, grid, (140, 165, 195), (200, 214, 230))
    land = _over(_horizon(b, grid, 0.58, 0.05), sky, _fade(b, grid, (255, 255, 255), (226, 234, 246)))
    return _over(_specks(grid, b.phase_N, 7, (0.10, 0.20), 0.7), land, _fade(b, grid, (255, 255, 255), (250, 252, 255)))


def _desert(b: Backgrounds, grid: Coordinates) -> Tensor:
    sky, dune = _fade(b, grid, (250, 214, 150), (254, 240, 205)), _fade(b, grid, (228, 168, 90), (228, 168, 90))
    far = _over(_horizon(b, grid, 0.48, 0.07), sky, dune)
    return _over(1 - _horizon(b, grid, 0.64, -0.06), _fade(b, grid, (214, 140, 62), (196, 120, 48)), far)


def _sunset(b: Backgrounds, grid: Coordinates) -> Tensor:
    n = len(b.phase_N)
    upper = _mix((grid.y_HW * 1.8).expand(n, -1, -1), _rgb(b.phase_N, 88, 48, 130), _rgb(b.phase_N, 240, 96, 84))
    lower = _mix((grid.y_HW * 1.8 - 0.8).expand(n, -1, -1), _rgb(b.phase_N, 240, 96, 84), _rgb(b.phase_N, 255, 205, 96))
    return _over((grid.y_HW > 0.5556).float().expand(n, -1, -1), upper, lower)


def _night(b: Backgrounds, grid: Coordinates) -> Tensor:
    sky = _fade(b, grid, (14, 20, 66), (62, 78, 150))
    star = _fade(b, grid, (255, 246, 190), (255, 246, 190))
    starry = _over(_specks(grid, b.phase_N, 7, (0.07, 0.13), 0.45), sky, star)
    return _over(_horizon(b, grid, 0.80, 0.05), starry, _fade(b, grid, (12, 34, 30), (10, 28, 26)))


def _space(b: Backgrounds, grid: Coordinates) -> Tensor:
    n = len(b.phase_N)
    angle = 2 * math.pi * _column(b.phase_N)
    center_x, center_y = 0.5 + 0.4 * torch.cos(angle), 0.5 + 0.4 * torch.sin(angle)
    mist = torch.exp(-(((grid.x_HW - center_x) ** 2 + (grid.y_HW - center_y) ** 2) / 0.10)) * 0.6
    sky = _mix(mist, _rgb(b.phase_N, 6, 5, 16), _rgb(b.phase_N, 120, 40, 150))
    small = _specks(grid, b.phase_N, 13, (0.08, 0.14), 0.6)
    large = _specks(grid, b.phase_N * 0.37, 6, (0.05, 0.11), 0.4)
    white = _rgb(b.phase_N, 250, 250, 255)[:, :, None, None].expand(n, 3, *grid.x_HW.shape)
    return _over(torch.maximum(small, large), sky, white)


def _underwater(b: Backgrounds, grid: Coordinates) -> Tensor:
    water = _fade(b, grid, (80, 205, 225), (6, 58, 128))
    bubbles = 0.55 * _specks(grid, b.phase_N, 6, (0.08, 0.22), 0.5)
    return _over(bubbles, water, _fade(b, grid, (225, 250, 255), (150, 215, 240)))


_PUFFS = (
    (0.0, 0.16, 0.09), (0.09, 0.13, 0.11), (0.19, 0.17, 0.08),
    (0.52, 0.84, 0.08), (0.62, 0.80, 0.11), (0.72, 0.85, 0.08),
)  # fmt: skip
"""Discs (x, y, radius) that make two clouds."""


def _sky(b: Backgrounds, grid: Coordinates) -> Tensor:
    blue = _fade(b, grid, (70, 150, 240), (170, 215, 250))
    puff = torch.zeros((len(b.phase_N), *grid.x_HW.shape), device=grid.x_HW.device)
    for x, y, radius in _PUFFS:
        from_left = (grid.x_HW - x - _column(b.phase_N) + 0.5) % 1.0 - 0.5
        distance = (from_left**2 + (1.4 * (grid.y_HW - y)) ** 2).sqrt()
        puff = torch.maximum(puff, 1 - _smooth(0.8, 1.0, distance / radius))
    return _over(puff, blue, _fade(b, grid, (255, 255, 255), (248, 252, 255)))


_PAINTERS: dict[str, Callable[[Backgrounds, Coordinates], Tensor]] = {
    "plain": _plain,
    "solid": _plain,
    "gradient": _gradient,
    "glow": _glow,
    "stripes": _stripes,
    "checker": _checker,
    "dots": _dots,
    "grass": _grass,
    "beach": _beach,
    "snow": _snow,
    "desert": _desert,
    "sunset": _sunset,
    "night": _night,
    "space": _space,
    "underwater": _underwater,
    "sky": _sky,
}


def paint_backgrounds(b: Backgrounds, height: int, width: int) -> Tensor:
    """[N, 3, H, W] in [0, 1]."""
    device = b.kind_N.device
    grid = Coordinates.of(height, width, device)
    picture_N3HW = torch.empty((len(b.kind_N), 3, height, width), device=device)
    for index, kind in enumerate(BACKGROUND_KINDS):
        rows = (b.kind_N == index).nonzero().flatten()
        if len(rows):
            picture_N3HW[rows] = _PAINTERS[kind](b[rows], grid)
    return picture_N3HW
