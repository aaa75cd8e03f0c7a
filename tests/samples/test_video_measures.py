"""The measures of generated clips are right where the truth is known."""

from __future__ import annotations

import torch

from samples.train.scenes.motion import MOTIONS, trajectory
from samples.train.video.judge import CLASSES, Track
from samples.train.video.measures import background_deviation, motion_of


def true_track(motion: str, wobble: float = 0.0, frames: int = 17) -> Track:
    torch.manual_seed(0)
    path = torch.tensor([trajectory(motion, index / (frames - 1)) for index in range(frames)])
    dx, dy, factor, degrees = (column[None] for column in path.unbind(1))
    noise = wobble * torch.randn(4, 1, frames)
    return Track(
        torch.zeros(1, frames, len(CLASSES)),
        0.48 + dx + noise[0],
        0.51 + dy + noise[1],
        0.45 * factor * (1 + noise[2]),
        degrees + 90 * noise[3],
    )


def test_every_true_track_is_recognised_as_its_own_motion_even_when_it_wobbles() -> None:
    for wobble in (0.0, 0.03):
        wrong = [m for i, m in enumerate(MOTIONS) if motion_of(true_track(m, wobble)).item() != i]
        assert wrong == [], f"wobble {wobble}"


def test_a_track_of_another_direction_is_not_taken_for_the_motion() -> None:
    track = true_track("right")
    mirrored = Track(track.classes_NTK, 1 - track.x_NT, track.y_NT, track.size_NT, track.degrees_NT)
    assert MOTIONS[int(motion_of(mirrored).item())] == "left"


def test_only_pixels_outside_the_thing_count_for_a_constant_background() -> None:
    track = true_track("still")
    clip = torch.full((1, 17, 3, 96, 96), 0.5)
    clip[:, ::2, :, 40:56, 40:56] = 1.0  # flickers inside the thing
    assert background_deviation(clip, track).item() < 1e-6
    clip[:, ::2, :, :10] = 0.8  # and here outside
    assert background_deviation(clip, track).item() > 0.01
