"""What is measured on clips: the motion of a track, the steadiness of the background, the judge's own reliability."""

from __future__ import annotations

import torch
from torch import Tensor

from samples.train.scenes.motion import MOTIONS, trajectory
from samples.train.video.clips import ClipSource, single_scenes
from samples.train.video.judge import CLASSES, Judge, Track

REAL_SEED = 10**9 + 1
"""Seed of the real renders that the judge is checked on; no training uses it."""

_TOLERANCES = {"place": 0.03, "log_size": 0.10, "angle": 0.35}
"""About one standard deviation of a good track: fractions of the picture, nats, and the angle's chord."""

CONSTANT_BELOW = 0.02
"""A background is constant when its mean deviation over time is below this (pixels in [0, 1]; about 5 of 255)."""


def motion_distances(track: Track) -> Tensor:
    """[N, motions] mean squared deviation, in tolerances, of each track from each motion at the best place and size."""
    frames = track.x_NT.shape[1]
    path = torch.tensor(
        [[trajectory(m, i / (frames - 1)) for i in range(frames)] for m in MOTIONS], device=track.x_NT.device
    )
    dx, dy, factor, degrees = path.unbind(-1)  # each [motions, T]
    x, y = track.x_NT[:, None] - dx, track.y_NT[:, None] - dy
    log_size = track.size_NT.log()[:, None] - factor.log()
    angle = torch.deg2rad(track.degrees_NT[:, None] - degrees)
    place = (x - x.mean(-1, keepdim=True)) ** 2 + (y - y.mean(-1, keepdim=True)) ** 2
    size = (log_size - log_size.mean(-1, keepdim=True)) ** 2
    chord = 2 - 2 * angle.cos()
    tolerances = _TOLERANCES
    total = place / tolerances["place"] ** 2 + size / tolerances["log_size"] ** 2 + chord / tolerances["angle"] ** 2
    return total.mean(-1)


def motion_of(track: Track) -> Tensor:
    """[N] index into MOTIONS of the nearest motion."""
    return motion_distances(track).argmin(-1)


def background_deviation(clips_NTCHW: Tensor, track: Track) -> Tensor:
    """[N] mean absolute deviation over time of the pixels while they lie outside the tracked thing's surroundings."""
    height, width = clips_NTCHW.shape[-2:]
    y = (torch.arange(height, device=clips_NTCHW.device) + 0.5)[:, None] / height
    x = (torch.arange(width, device=clips_NTCHW.device) + 0.5)[None] / width
    distance = (x - track.x_NT[..., None, None]) ** 2 + (y - track.y_NT[..., None, None]) ** 2
    outside = (distance > (0.75 * track.size_NT[..., None, None]) ** 2).float()[:, :, None]
    seen = outside.sum(1)
    mean = (clips_NTCHW * outside).sum(1) / seen.clamp_min(1)
    deviation = ((clips_NTCHW - mean[:, None]).abs() * outside).sum(1) / seen.clamp_min(1)
    judged = (seen >= 2).float().expand_as(deviation)
    return (deviation * judged).sum((1, 2, 3)) / judged.sum((1, 2, 3)).clamp_min(1)


def judge_figures(judge: Judge, device: torch.device, clips: int) -> dict[str, float]:
    """How often the judge is right on unseen real renders: single frames, whole clips, motions, backgrounds."""
    source = ClipSource(REAL_SEED, device)
    scenes = single_scenes(source, clips)
    pixels = source.render(scenes).float() / 255
    track = judge.track(pixels)
    thing = torch.tensor([CLASSES.index(scene.items[0].thing_id) for scene in scenes], device=device)
    motion = torch.tensor([MOTIONS.index(scene.items[0].motion) for scene in scenes], device=device)
    return {
        "clips": clips,
        "thing_in_one_frame": (track.classes_NTK.argmax(-1) == thing[:, None]).float().mean().item(),
        "thing_in_a_clip": (track.thing_N == thing).float().mean().item(),
        "motion": (motion_of(track) == motion).float().mean().item(),
        "background_deviation": background_deviation(pixels, track).mean().item(),
    }
