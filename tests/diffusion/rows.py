"""Rows of a denoise stage with random contents, for tests of stages without a runner."""

from collections.abc import Sequence

import torch

from hemiola.core.request import MediaRequest
from hemiola.diffusion.families import Family
from hemiola.diffusion.stage import Noisy
from hemiola.tests.diffusion.driver import media_request


def requests_for(family: Family) -> list[MediaRequest]:
    """With and without guidance and, where a batch may have them, of several sizes."""
    sizes = [(48, 32), (48, 32), (32, 48), (64, 64)] if family.edge.kind == "image" else [(48, 32)] * 3
    guidance = [3.0, 0.0, 4.5, 1.5]
    return [
        media_request(family, str(i), "a red fox" * (i + 1), width=width, height=height, guidance_scale=guidance[i])
        for i, (width, height) in enumerate(sizes)
    ]


def rows_for(family: Family, requests: Sequence[MediaRequest], seed: int, device: str = "cpu") -> list[Noisy]:
    """Rows of these layouts with random contents, at a random step."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for request in requests:
        schedule = family.schedule(request)
        conditions = [
            torch.randn(family.condition_shape(len(ids)), generator=generator).to(device, family.condition_dtype)
            for ids in family.prompts(request)
        ]
        latents = torch.randn(family.latents_shape(request), generator=generator).to(device)
        timestep = schedule.timesteps[seed % schedule.num_steps]
        rows.append(Noisy(latents, timestep, tuple(conditions), family.num_padding(request), 1.0 + seed))
    return rows
