"""The motions of clips: paths over normalised time u in [0, 1], so that any number of frames shows the whole motion."""

import math

MOTIONS: tuple[str, ...] = (
    "right", "left", "up", "down", "up right", "down right", "spin clockwise", "spin counterclockwise", "grow",
    "shrink",
    "bounce", "wiggle", "circle", "side to side", "still",
)  # fmt: skip

IN_PLACE: tuple[str, ...] = (
    "up", "down", "spin clockwise", "spin counterclockwise", "grow",
    "shrink", "bounce", "wiggle",
    "still",
)  # fmt: skip
"""Motions that keep to a column of the picture, for clips with two things."""

REACH = 0.27
"""How far a travelling thing goes from the middle, as a fraction of the picture."""

_DIRECTIONS = {
    "right": (1, 0), "left": (-1, 0), "up": (0, -1), "down": (0, 1), "up right": (1, -1), "down right": (1, 1),
}  # fmt: skip


def trajectory(motion: str, u: float) -> tuple[float, float, float, float]:
    """State at time u in [0, 1]: offset (dx, dy) in fractions of the picture, factor on the size, degrees clockwise."""
    wave = math.sin(2 * math.pi * u)
    if motion in _DIRECTIONS:
        x, y = _DIRECTIONS[motion]
        return x * REACH * (2 * u - 1), y * REACH * (2 * u - 1), 1.0, 0.0
    if motion == "spin clockwise":
        return 0.0, 0.0, 1.0, 360 * u
    if motion == "spin counterclockwise":
        return 0.0, 0.0, 1.0, -360 * u
    if motion == "grow":
        return 0.0, 0.0, 0.45 + 0.95 * u, 0.0
    if motion == "shrink":
        return 0.0, 0.0, 1.4 - 0.95 * u, 0.0
    if motion == "bounce":
        return 0.0, REACH * (0.7 - 1.5 * abs(wave)), 1.0, 0.0
    if motion == "wiggle":
        return 0.0, 0.0, 1.0, 26 * math.sin(4 * math.pi * u)
    if motion == "circle":
        return 0.22 * wave, -0.22 * math.cos(2 * math.pi * u), 1.0, 0.0
    if motion == "side to side":
        return 0.25 * wave, 0.0, 1.0, 0.0
    return 0.0, 0.0, 1.0, 0.0
