"""How FLUX.1's tokens lie in a batch: texts and pictures of all rows, apart or packed into segments. Knows no weights.

A row has a segment for each guidance branch: a text, then a picture. The double blocks keep all texts in one stream and
all pictures in another, each [tokens, ...] without a batch dimension; attention and the single blocks see segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..attention import Packing
from ..edge.flux import PATCH


class Size(NamedTuple):
    """Latent pixels of a picture."""

    height: int
    width: int

    @property
    def num_patches(self) -> int:
        return (self.height // PATCH) * (self.width // PATCH)


class Shape(NamedTuple):
    """Of a denoise row: its picture, and the text of each guidance branch."""

    size: Size
    text_lens: tuple[int, ...]

    @property
    def segment_lens(self) -> tuple[int, ...]:
        return tuple(text_len + self.size.num_patches for text_len in self.text_lens)


class Segment(NamedTuple):
    """One guidance branch of one row. `condition` is its place among the conditions of all rows in turn."""

    row: int
    condition: int
    text_len: int
    size: Size


@dataclass(frozen=True, slots=True)
class Layout:
    """A batch. Segments are ordered by length, so that equal lengths are neighbours."""

    segments: tuple[Segment, ...]
    branches: tuple[tuple[int, ...], ...]  # of each row: places of its positive and negative segment
    packing: Packing

    @property
    def text_lens(self) -> list[int]:
        return [segment.text_len for segment in self.segments]

    @property
    def picture_lens(self) -> list[int]:
        return [segment.size.num_patches for segment in self.segments]

    @property
    def is_even(self) -> bool:
        """Whether all texts are equally long, and all pictures."""
        return len(set(self.text_lens)) == 1 and len(set(self.picture_lens)) == 1


@lru_cache(maxsize=256)
def layout_of(shapes: tuple[Shape, ...]) -> Layout:
    segments: list[Segment] = []
    for row, shape in enumerate(shapes):
        for text_len in shape.text_lens:
            segments.append(Segment(row, len(segments), text_len, shape.size))
    segments.sort(key=lambda segment: (segment.text_len + segment.size.num_patches, segment.text_len))
    branches: list[list[int]] = [[] for _ in shapes]
    for place, segment in sorted(enumerate(segments), key=lambda entry: entry[1].condition):
        branches[segment.row].append(place)
    lengths = tuple(segment.text_len + segment.size.num_patches for segment in segments)
    return Layout(tuple(segments), tuple(map(tuple, branches)), Packing(lengths))


def join(layout: Layout, texts: Tensor, pictures: Tensor) -> Tensor:
    """Both streams [tokens, ...] as segments [B, L, ...]."""
    if layout.is_even:
        count = len(layout.segments)
        return torch.cat([stream.unflatten(0, (count, -1)) for stream in (texts, pictures)], dim=1)
    pairs = zip(texts.split(layout.text_lens), pictures.split(layout.picture_lens), strict=True)
    packed = torch.cat([part for pair in pairs for part in pair])
    return packed.view(*layout.packing.shape, *packed.shape[1:])


def split(layout: Layout, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Segments [B, L, D] as streams of texts and of pictures [tokens, D]."""
    if layout.is_even:
        text_len = layout.segments[0].text_len
        return segments[:, :text_len].flatten(0, 1), segments[:, text_len:].flatten(0, 1)
    lengths = [length for s in layout.segments for length in (s.text_len, s.size.num_patches)]
    parts = segments.flatten(0, 1).split(lengths)
    return torch.cat(parts[0::2]), torch.cat(parts[1::2])


def patchified(latents: Tensor) -> Tensor:
    """[C, 1, height, width] to [num_patches, C * PATCH * PATCH]."""
    channels, _, height, width = latents.shape
    grid = latents.reshape(channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return grid.permute(1, 3, 0, 2, 4).reshape(-1, channels * PATCH * PATCH)


def unpatchified(tokens: Tensor, size: Size) -> Tensor:
    grid = tokens.view(size.height // PATCH, size.width // PATCH, -1, PATCH, PATCH)
    return grid.permute(2, 0, 3, 1, 4).reshape(-1, 1, size.height, size.width)


def guided(branches: Sequence[Tensor], scale: float) -> Tensor:
    if len(branches) == 1:
        return branches[0]
    positive, negative = branches
    return negative + scale * (positive - negative)
