"""How Z-Image's tokens lie in a batch: pictures and captions of all rows, packed into segments. Knows no weights.

A row has a segment for each guidance branch. A segment is a picture, then a caption, each padded to a multiple of 32
tokens; positions of the picture start after its caption.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..attention import Packing
from ..edge.zimage import PATCH, TOKEN_MULTIPLE
from ..places import Span


def padded(num_tokens: int) -> int:
    return -(-num_tokens // TOKEN_MULTIPLE) * TOKEN_MULTIPLE


class Shape(NamedTuple):
    """Of a denoise row: latent pixels, and the padded caption of each guidance branch."""

    height: int
    width: int
    caption_lens: tuple[int, ...]

    @property
    def num_patches(self) -> int:
        return (self.height // PATCH) * (self.width // PATCH)

    @property
    def picture_len(self) -> int:
        return padded(self.num_patches)

    @property
    def pictures(self) -> tuple[int, ...]:
        """A picture's positions start after its caption, so branches with equally long captions share one."""
        return tuple(dict.fromkeys(self.caption_lens))

    @property
    def segment_lens(self) -> tuple[int, ...]:
        return tuple(map(self.segment_len, self.caption_lens))

    def segment_len(self, caption_len: int) -> int:
        return self.picture_len + caption_len

    def spot(self, caption_len: int) -> "Spot":
        return Spot(caption_len, self.height, self.width)


class Spot(NamedTuple):
    """What the positions of a segment depend on: its caption's length and its picture's latent pixels."""

    caption_len: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture tokens of one row, for the guidance branches with captions of one length."""

    row: int
    spot: Spot


@dataclass(frozen=True, slots=True)
class Segment:
    """One guidance branch of one row: a picture (by its place), then a caption (by its tokens)."""

    row: int
    spot: Spot
    picture: int
    caption: Span


@dataclass(frozen=True, slots=True)
class Layout:
    """A batch. Both kinds are ordered by length, so that equal lengths are neighbours."""

    shapes: tuple[Shape, ...]
    pictures: tuple[Picture, ...]
    segments: tuple[Segment, ...]
    branches: tuple[tuple[int, ...], ...]  # of each row: places of its positive and negative segment
    picture_packing: Packing
    segment_packing: Packing


@lru_cache(maxsize=256)
def layout_of(shapes: tuple[Shape, ...]) -> Layout:
    pictures = [Picture(row, shape.spot(length)) for row, shape in enumerate(shapes) for length in shape.pictures]
    pictures.sort(key=lambda picture: shapes[picture.row].picture_len)
    places = {(picture.row, picture.spot): place for place, picture in enumerate(pictures)}
    segments, start = [], 0
    for row, shape in enumerate(shapes):
        for length in shape.caption_lens:
            spot = shape.spot(length)
            segments.append(Segment(row, spot, places[row, spot], Span(start, start + length)))
            start += length
    segments.sort(key=lambda segment: shapes[segment.row].segment_len(segment.spot.caption_len))
    branches: list[list[int]] = [[] for _ in shapes]
    for place, segment in sorted(enumerate(segments), key=lambda entry: entry[1].caption.start):
        branches[segment.row].append(place)
    return Layout(
        shapes,
        tuple(pictures),
        tuple(segments),
        tuple(map(tuple, branches)),
        Packing(tuple(shapes[p.row].picture_len for p in pictures)),
        Packing(tuple(shapes[s.row].segment_len(s.spot.caption_len) for s in segments)),
    )


def pack(parts: Sequence[Tensor], packing: Packing) -> Tensor:
    return torch.cat(list(parts)).view(*packing.shape, -1)


def pack_rope(parts: Sequence[Picture] | Sequence[Segment], rope: Callable[[Spot], Tensor], packing: Packing) -> Tensor:
    """[N, L, rope_dim], or with N = 1 where all have the same positions."""
    spots = [part.spot for part in parts]
    if len(set(spots)) == 1:
        return rope(spots[0]).unsqueeze(0)
    return pack([rope(spot) for spot in spots], packing)


def patchified(latents: Tensor) -> Tensor:
    """[C, 1, height, width] to [num_patches, PATCH * PATCH * C]."""
    channels, _, height, width = latents.shape
    grid = latents.view(channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return grid.permute(1, 3, 2, 4, 0).reshape(-1, PATCH * PATCH * channels)


def unpatchified(tokens: Tensor, shape: Shape, channels: int) -> Tensor:
    grid = tokens.view(shape.height // PATCH, shape.width // PATCH, PATCH, PATCH, channels)
    return grid.permute(4, 0, 2, 1, 3).reshape(channels, 1, shape.height, shape.width)
