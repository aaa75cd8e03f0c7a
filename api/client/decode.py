"""From the files that servers send to Pixels. Needs Pillow, PyAV and numpy."""

import io

import av
import numpy as np
from PIL import Image, UnidentifiedImageError

from hemiola.core.events import Pixels

from .errors import ConnectionLost


def decode_picture(data: bytes) -> Pixels:
    """PNG, JPEG or WebP; only PNG gives the server's pixels exactly.

    Raises:
        ConnectionLost: it is none of them.
    """
    try:
        array = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise ConnectionLost("The server sent a picture that cannot be read.") from error
    height, width, _ = array.shape
    return Pixels(array.tobytes(), 1, height, width)


def decode_clip(data: bytes) -> tuple[Pixels, int]:
    """The frames of an MP4, and how many of them a second. Compressed, so not the server's pixels exactly.

    Raises:
        ConnectionLost: it is none.
    """
    try:
        with av.open(io.BytesIO(data)) as container:
            (stream, *_) = container.streams.video
            fps = round(stream.average_rate or 1)
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    except (av.error.FFmpegError, ValueError) as error:
        raise ConnectionLost("The server sent a clip that cannot be read.") from error
    if not frames:
        raise ConnectionLost("The server sent a clip without frames.")
    height, width, _ = frames[0].shape
    return Pixels(b"".join(frame.tobytes() for frame in frames), len(frames), height, width), fps
