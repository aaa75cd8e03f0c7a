"""Pixels to pictures, arrays and files."""

import io
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from hemiola.core.events import Pixels
from hemiola.diffusion import media


def clip(num_frames: int, pixel_type: str = "uint8") -> Pixels:
    """Smooth colours that move, so that H.264 keeps them well."""
    t, y, x = np.meshgrid(np.arange(num_frames), np.arange(32), np.arange(48), indexing="ij")
    array = np.stack([(t * 12) % 256, y * 7, x * 5], axis=-1).astype(np.uint8)
    if pixel_type == "float32":
        return Pixels((array / 255).astype(np.float32).tobytes(), num_frames, 32, 48, "float32")
    return Pixels(array.tobytes(), num_frames, 32, 48)


@pytest.mark.parametrize("image_format", ["png", "jpeg", "webp"])
def test_an_encoded_picture_decodes_to_the_pixels(image_format: media.ImageFormat) -> None:
    pixels = clip(1)
    with Image.open(io.BytesIO(media.to_bytes(pixels, image_format))) as image:
        assert image.format == image_format.upper() and image.size == (48, 32)
        difference = np.abs(np.asarray(image.convert("RGB")).astype(int) - media.to_numpy(pixels)[0])
    assert difference.max() == 0 if image_format == "png" else difference.mean() < 4


def test_float_pixels_round_to_the_same_picture() -> None:
    assert np.array_equal(np.asarray(media.to_pil(clip(1, "float32"))), np.asarray(media.to_pil(clip(1))))
    assert media.to_numpy(clip(2, "float32")).dtype == np.float32


@pytest.mark.parametrize("num_frames", [1, 5, 17])
def test_a_clip_is_h264_with_exactly_its_frames_and_rate(num_frames: int, tmp_path: Path) -> None:
    pixels = clip(num_frames)
    path = tmp_path / "clip.mp4"
    media.save_mp4(pixels, path, fps=12)
    assert path.read_bytes()[4:8] == media.to_mp4(pixels, fps=12)[4:8] == b"ftyp"
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 12
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(frames) == num_frames
    assert np.abs(np.stack(frames).astype(int) - media.to_numpy(pixels)).mean() < 6


def test_frames_of_a_clip_are_pictures_in_order() -> None:
    frames = media.to_frames(clip(5))
    assert [frame.getpixel((0, 0)) for frame in frames] == [(12 * i, 0, 0) for i in range(5)]


def test_odd_sides_are_refused() -> None:
    with pytest.raises(ValueError, match="even sides"):
        media.to_mp4(Pixels(bytes(3 * 3 * 3), 1, 3, 3), fps=8)
