"""The edge: from what users say to validated requests of token ids. No torch; one front per served model."""

from collections.abc import Mapping, Sequence

from hemiola.core.config import EngineConfig, ResolvedConfig
from hemiola.core.hub import ModelSource, tokenizer_folder

from .media import MediaFront
from .text import TextFront


def open_fronts(
    served: Sequence[ModelSource], shared: Mapping[str, ModelSource], config: EngineConfig | ResolvedConfig
) -> dict[str, TextFront | MediaFront]:
    """The front of each served model, by name.

    Args:
        shared: per pipeline name, the language model that is its text encoder.
        config: says what may be asked at most.
    """
    return {source.name: _open(source, shared.get(source.name), config) for source in served}


def _open(
    source: ModelSource, encoder: ModelSource | None, config: EngineConfig | ResolvedConfig
) -> TextFront | MediaFront:
    tokenizer = tokenizer_folder(source)
    if source.kind == "language":
        return TextFront(source.name, source.path, tokenizer)
    if tokenizer is None and encoder is not None:
        tokenizer = encoder.path
    front = MediaFront(source.name, source.path, tokenizer)
    front.edge.restrict(config.max_pixels, config.max_frames, config.max_frame_pixels)
    return front
