"""Pixels to pictures, arrays and files. Needs Pillow, PyAV and numpy, and no torch."""

import io
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Image as PILImage

from hemiola.core.events import Pixels

ImageFormat = Literal["png", "jpeg", "webp"]
_QUALITY: dict[str, dict[str, Any]] = {"png": {}, "jpeg": {"quality": 95}, "webp": {"quality": 95}}
_MP4_CRF = "18"  # constant quality of H.264: visually lossless


def to_numpy(pixels: Pixels) -> NDArray[Any]:
    """[num_frames, height, width, 3], of the pixels' own type; a view of their bytes, not to be written to."""
    shape = (pixels.num_frames, pixels.height, pixels.width, 3)
    return np.frombuffer(pixels.data, dtype=pixels.pixel_type).reshape(shape)


def to_uint8(pixels: Pixels) -> NDArray[np.uint8]:
    """As `to_numpy`, in 0..255."""
    array = to_numpy(pixels)
    return array if array.dtype == np.uint8 else (array * 255).round().astype(np.uint8)


def to_frames(pixels: Pixels) -> list[PILImage]:
    """All frames as PIL images."""
    return [Image.fromarray(frame) for frame in to_uint8(pixels)]


def to_pil(pixels: Pixels) -> PILImage:
    """The first frame as a PIL image."""
    return Image.fromarray(to_uint8(pixels)[0])


def to_bytes(pixels: Pixels, image_format: ImageFormat = "png") -> bytes:
    """The first frame as an encoded file."""
    buffer = io.BytesIO()
    to_pil(pixels).save(buffer, format=image_format.upper(), **_QUALITY[image_format])
    return buffer.getvalue()


def save_mp4(pixels: Pixels, target: str | Path | io.BytesIO, fps: int) -> None:
    """Writes all frames as H.264 in an MP4, playable everywhere (yuv420p), each for 1 / fps seconds.

    Raises:
        ValueError: odd width or height, which yuv420p cannot have.
    """
    if pixels.width % 2 or pixels.height % 2:
        raise ValueError(f"An MP4 needs even sides, not {pixels.width}x{pixels.height}.")
    file = str(target) if isinstance(target, str | Path) else target
    with av.open(file, mode="w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps), options={"crf": _MP4_CRF})
        stream.width, stream.height, stream.pix_fmt = pixels.width, pixels.height, "yuv420p"
        for array in to_uint8(pixels):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(array, format="rgb24")))
        container.mux(stream.encode())


def to_mp4(pixels: Pixels, fps: int) -> bytes:
    """As `save_mp4`, in memory."""
    buffer = io.BytesIO()
    save_mp4(pixels, buffer, fps)
    return buffer.getvalue()
