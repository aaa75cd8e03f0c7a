"""Pictures and clips as pieces of HTML that need no file beside them. Knows no notebook and no program."""

import base64
import io
from collections.abc import Sequence
from html import escape

from PIL.Image import Image as PILImage

_STYLE = "max-width:100%;border-radius:6px"


def media_tag(file: bytes, mime_type: str, title: str) -> str:
    """An <img> or, for clips, a <video> with the file inside. The title is shown where a mouse points at it."""
    source = f'src="{data_uri(file, mime_type)}" title="{escape(title)}" style="{_STYLE}"'
    if mime_type.startswith("video/"):
        return f"<video {source} controls autoplay loop muted playsinline></video>"
    return f'<img {source} alt="{escape(title)}">'


def animated(frames: Sequence[PILImage], fps: int) -> bytes:
    """Frames of any size as a WebP that repeats for ever."""
    buffer = io.BytesIO()
    first, *rest = frames
    duration_ms = round(1000 / fps)
    first.save(buffer, format="WEBP", save_all=True, append_images=rest, duration=duration_ms, loop=0, quality=90)
    return buffer.getvalue()


def data_uri(data: bytes, mime_type: str) -> str:
    """The data as an address of itself."""
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"
