"""The edge: from what users say to validated requests of token ids. No torch; one front per served model."""

from collections.abc import Mapping, Sequence

from hemiola.core.hub import ModelSource

from .media import MediaFront
from .text import TextFront


def open_fronts(served: Sequence[ModelSource], shared: Mapping[str, ModelSource]) -> dict[str, TextFront | MediaFront]:
    """The front of each served model, by name. `shared`: the language model that is a pipeline's text encoder."""
    return {source.name: _open(source, shared.get(source.name)) for source in served}


def _open(source: ModelSource, encoder: ModelSource | None) -> TextFront | MediaFront:
    if source.kind == "language":
        return TextFront(source.name, source.path)
    return MediaFront(source.name, source.path, encoder.path if encoder else None)
