"""Diffusion models: pictures and clips, step by step. `edge` and `media` need no torch; the runner is loaded on demand.

edge/       what may be asked, and what prompts become: no torch
families/   one file a pipeline family: its transformer's forward, and which encoders and VAE it has
solvers/    the noise update
stage.py    what encode, denoise and decode are: blocks over a carry
runner.py   executes them: batches, leases, open steps
media.py    pixels to files
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runner import DiffusionRunner as DiffusionRunner

__all__ = ["DiffusionRunner"]


def __getattr__(name: str) -> Any:
    if name == "DiffusionRunner":
        from .runner import DiffusionRunner

        return DiffusionRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
