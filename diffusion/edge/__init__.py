"""The torch-free side of the diffusion families, by the pipeline class that model_index.json names."""

from collections.abc import Callable, Mapping
from pathlib import Path

from hemiola.core.errors import UnsupportedModel

from .base import Defaults, Edge, Encoder, Limits, PromptIds
from .files import PipelineFiles, read_pipeline
from .flux import FluxEdge
from .prompt_tokenizer import PromptTokenizer
from .wan import WanEdge
from .zimage import ZImageEdge

__all__ = [
    "EDGES",
    "Defaults",
    "Edge",
    "Encoder",
    "Limits",
    "PipelineFiles",
    "PromptIds",
    "PromptTokenizer",
    "load_tokenizers",
    "open_edge",
    "read_pipeline",
]

EDGES: dict[str, Callable[[PipelineFiles], Edge]] = {
    "FluxPipeline": FluxEdge,
    "WanPipeline": WanEdge,
    "ZImagePipeline": ZImageEdge,
}


def open_edge(pipeline: str | Path | PipelineFiles) -> Edge:
    """The edge of the pipeline in that folder.

    Raises:
        ModelNotFound: no pipeline lies there.
        UnsupportedModel: no family here runs it; the supported ones are listed.
    """
    files = pipeline if isinstance(pipeline, PipelineFiles) else read_pipeline(pipeline)
    if files.pipeline_class not in EDGES:
        raise UnsupportedModel(
            f"{files.folder} holds a '{files.pipeline_class}'. Supported pipelines: {', '.join(sorted(EDGES))}."
        )
    return EDGES[files.pipeline_class](files)


def load_tokenizers(edge: Edge, shared: str | Path | None = None) -> Mapping[str, PromptTokenizer]:
    """Tokenizers per text encoder: the pipeline's own, whose template may differ, or the shared model's.

    Args:
        edge: of the pipeline.
        shared: folder of the language model that is its text encoder, where hemiola.json says so.
    """
    tokenizers = {}
    for encoder in edge.encoders:
        own = edge.files.folder / encoder.tokenizer
        folder = Path(shared) if shared is not None and not own.is_dir() else edge.files.component(encoder.tokenizer)
        tokenizers[encoder.name] = PromptTokenizer(folder)
    return tokenizers
