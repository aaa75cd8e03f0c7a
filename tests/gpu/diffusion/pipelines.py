"""Random pipelines for a GPU: the tiny ones of the CPU's tests, and medium ones with heads as published models have."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hemiola.diffusion.families import Family, load_family
from hemiola.tests.tiny_diffusion import tiny_flux, tiny_pipeline_dir, tiny_wan, tiny_zimage

NAMES = ("zimage", "wan", "flux", "medium-zimage", "medium-wan", "medium-flux")

_MEDIUM: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "zimage": (tiny_zimage, {"dim": 768, "n_heads": 6, "n_kv_heads": 6, "n_layers": 6, "axes_dims": [32, 48, 48],
                             "axes_lens": [128, 64, 64]}),
    "wan": (tiny_wan, {"num_attention_heads": 6, "attention_head_dim": 128, "ffn_dim": 1024, "num_layers": 6}),
    "flux": (tiny_flux, {"num_layers": 3, "num_single_layers": 6, "attention_head_dim": 128, "num_attention_heads": 6,
                         "axes_dims_rope": (16, 56, 56)}),
}  # fmt: skip


@functools.cache
def pipeline_dir(name: str) -> Path:
    """A folder with the pipeline of that name."""
    kind = name.removeprefix("medium-")
    if kind == name:
        return tiny_pipeline_dir(name)
    folder = Path(tempfile.mkdtemp(prefix=f"hemiola-{name}-"))
    make, options = _MEDIUM[kind]
    make(**options).save_pretrained(folder)
    for file in tiny_pipeline_dir(kind).glob("hemiola.json"):
        (folder / file.name).write_text(file.read_text())
    return folder


@functools.cache
def family(name: str, dtype: torch.dtype, device: str) -> Family:
    """The pipeline, loaded once."""
    return load_family(pipeline_dir(name), dtype=dtype, device=device)
