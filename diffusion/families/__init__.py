"""The diffusion families, by the pipeline class that model_index.json names."""

from collections.abc import Callable
from pathlib import Path

import torch

from hemiola.core.config import LoadFormat
from hemiola.core.errors import UnsupportedModel

from ..components import Components
from ..edge import Edge, open_edge
from .base import Family
from .flux import Flux
from .wan import Wan
from .zimage import ZImage

__all__ = ["FAMILIES", "Family", "load_family"]

FAMILIES: dict[str, Callable[[Edge, Components], Family]] = {
    "FluxPipeline": Flux,
    "WanPipeline": Wan,
    "ZImagePipeline": ZImage,
}


def load_family(
    folder: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    load_format: LoadFormat = "auto",
) -> Family:
    """The pipeline in that folder, with its weights; with `load_format="dummy"` random ones, from configs alone.

    Raises:
        ModelNotFound: no pipeline, or one of its components, lies there.
        UnsupportedModel: no family runs it, or not with its options.
        CorruptWeights: weights that cannot be read, or that are not those of the configs.
    """
    edge = open_edge(folder)
    name = edge.files.pipeline_class
    if name not in FAMILIES:
        raise UnsupportedModel(f"No family runs '{name}'. Supported pipelines: {', '.join(sorted(FAMILIES))}.")
    components = Components(edge.files, dtype=dtype, device=device, load_format=load_format)
    with torch.no_grad():
        return FAMILIES[name](edge, components)
