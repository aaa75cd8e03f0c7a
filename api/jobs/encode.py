"""Pixels to the files that users get. Slow, and so called on threads; needs Pillow and PyAV, no torch."""

import io
import math
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from PIL.Image import Image as PILImage

from hemiola.core.events import Pixels
from hemiola.diffusion import media

PictureFormat = Literal["png", "jpeg", "webp"]
MEDIA_TYPES: dict[str, str] = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}

_THUMBNAIL_SIDE = 512
_SHEET_SIDE = 160  # of one frame
_SHEET_FRAMES = 16


def encode_picture(pixels: Pixels, picture_format: PictureFormat, compression: int = 100) -> bytes:
    """The first frame as a file.

    Args:
        compression: 0 to 100, the quality of JPEG and WebP; of PNG, which loses nothing, it is ignored.
    """
    buffer = io.BytesIO()
    options: dict[str, Any] = {} if picture_format == "png" else {"quality": compression}
    media.to_pil(pixels).save(buffer, format=picture_format.upper(), **options)
    return buffer.getvalue()


def save_clip(pixels: Pixels, target: Path, fps: int) -> None:
    """All frames as an MP4."""
    media.save_mp4(pixels, target, fps)


def save_thumbnail(pixels: Pixels, target: Path) -> None:
    """The frame in the middle as a WebP, at most 512 pixels wide and high."""
    _shrunk(_frame(pixels, pixels.num_frames // 2), _THUMBNAIL_SIDE).save(target, format="WEBP", quality=90)


def save_spritesheet(pixels: Pixels, target: Path) -> None:
    """Up to 16 frames, evenly spread from the first to the last, row by row in one JPEG."""
    count = min(_SHEET_FRAMES, pixels.num_frames)
    chosen = [round(i * (pixels.num_frames - 1) / max(count - 1, 1)) for i in range(count)]
    frames = [_shrunk(_frame(pixels, i), _SHEET_SIDE) for i in chosen]
    width, height = frames[0].size
    columns = math.ceil(math.sqrt(count))
    sheet = Image.new("RGB", (columns * width, math.ceil(count / columns) * height))
    for i, frame in enumerate(frames):
        sheet.paste(frame, (i % columns * width, i // columns * height))
    sheet.save(target, format="JPEG", quality=90)


def _frame(pixels: Pixels, index: int) -> PILImage:
    return Image.fromarray(media.to_uint8(pixels)[index])


def _shrunk(image: PILImage, side: int) -> PILImage:
    """Never enlarged."""
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return image
