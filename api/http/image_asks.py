"""What is asked for with POST /v1/images/generations, from its fields."""

from dataclasses import dataclass
from typing import cast

from hemiola.core.errors import InvalidRequest

from ..front.media import MAX_N
from ..jobs.encode import PictureFormat
from .fields import Fields
from .media_asks import MediaAsk, read_ask
from .media_fields import IMAGE_FIELDS
from .server import Server

MAX_PREVIEWS = 3


@dataclass(frozen=True, slots=True)
class ImageAsk:
    """Fields: how many pictures, their files, whether they are fetched by URL, whether and how they are streamed."""

    media: MediaAsk
    n: int
    picture_format: PictureFormat
    compression: int
    is_by_url: bool
    is_streamed: bool
    max_previews: int

    @property
    def bytes_at_most(self) -> int:
        """Of all files together: no encoder makes more of a picture than it is, to speak of."""
        return self.n * (self.media.width * self.media.height * 3 + 4096)


def read_image_ask(fields: Fields, server: Server, tenant: str) -> ImageAsk:
    """
    Raises:
        InvalidRequest: names the field, the value and what is allowed.
        ModelNotFound: nothing is served under that name.
    """
    ask = ImageAsk(
        media=read_ask(fields, server, "image", tenant),
        n=fields.integer("n", "num_outputs_per_prompt", smallest=1, largest=MAX_N) or 1,
        picture_format=_read_format(fields),
        compression=_or(fields.integer("output_compression", smallest=0, largest=100), 100),
        is_by_url=fields.choice("response_format", allowed=("b64_json", "url")) == "url",
        is_streamed=fields.boolean("stream") or False,
        max_previews=fields.integer("partial_images", smallest=0, largest=MAX_PREVIEWS) or 0,
    )
    if fields.choice("background", allowed=("opaque", "auto", "transparent")) == "transparent":
        raise _unsupported("background", "'transparent'. The served models paint the whole picture: 'opaque' or 'auto'")
    if ask.is_streamed and ask.is_by_url:
        raise _unsupported("response_format", "'url' together with 'stream'. Allowed then: 'b64_json'")
    fields.refuse_rest(IMAGE_FIELDS, is_strict=server.settings.strict_params)
    return ask


def _read_format(fields: Fields) -> PictureFormat:
    name = fields.choice("output_format", allowed=("png", "jpeg", "webp", "jpg", "gif", "svg"))
    if name in ("gif", "svg"):
        raise _unsupported("output_format", f"'{name}'. Allowed: 'png', 'jpeg', 'webp'")
    return cast(PictureFormat, "jpeg" if name == "jpg" else name or "png")


def _unsupported(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(param, f"Unsupported value for '{param}': {what}.", "unsupported_value")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
