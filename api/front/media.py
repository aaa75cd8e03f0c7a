"""From what a user says of a picture or clip to validated MediaRequests. No torch; reads only small files."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from hemiola.core.bounds import shown
from hemiola.core.errors import InvalidRequest
from hemiola.core.request import MediaRequest, PixelType
from hemiola.diffusion.edge import Edge, Limits, load_tokenizers, open_edge

from .terms import CallTerms, check_integer, check_number, check_text

MAX_N = 10
MAX_PROMPT_LEN = 32_000  # characters
MAX_STEPS = 200
MAX_GUIDANCE = 20.0
MAX_SEED = 2**63 - 1
MAX_FPS = 120
MAX_FRAMES = 1_000_000
_SIZE = re.compile(r"\s*(\d{1,6})\s*[xX×]\s*(\d{1,6})\s*", re.ASCII)
# Options of `MediaFront.requests` that are none for what the model makes.
NO_OPTIONS = {"image": frozenset({"num_frames", "fps"}), "video": frozenset({"n"})}


class MediaFront:
    """The edge of one served diffusion model.

    Args:
        name: what it is served as.
        folder: the pipeline's.
        tokenizer_folder: where the tokenizer is, if it is another model's.
    """

    def __init__(self, name: str, folder: Path, tokenizer_folder: Path | None = None) -> None:
        self.name = name
        self.edge: Edge = open_edge(folder)
        self._tokenizers = load_tokenizers(self.edge, tokenizer_folder)

    @property
    def kind(self) -> str:
        return self.edge.kind

    def requests(
        self,
        prompt: str,
        terms: CallTerms,
        *,
        negative_prompt: str = "",
        size: str | Sequence[int] | None = None,
        num_frames: int | None = None,
        num_inference_steps: int | None = None,
        guidance_scale: float | None = None,
        seed: int | None = None,
        n: int = 1,
        fps: int | None = None,
        pixel_type: str = "uint8",
    ) -> list[MediaRequest]:
        """`n` requests with seeds `seed`, `seed + 1`, ...; a seed that is left out is random, and found in each.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        if not check_text("prompt", prompt, MAX_PROMPT_LEN):
            raise InvalidRequest("prompt", "Invalid 'prompt': empty. At least one character is needed.")
        check_text("negative_prompt", negative_prompt, MAX_PROMPT_LEN)
        n = check_integer("n", n, 1, MAX_N if self.kind == "image" else 1)
        defaults = self.edge.defaults
        width, height = wanted_size(size) or (defaults.width, defaults.height)
        first_seed = random.getrandbits(32) if seed is None else check_integer("seed", seed, 0, MAX_SEED)
        guidance = check_number("guidance_scale", _of(guidance_scale, defaults.guidance_scale), 0.0, MAX_GUIDANCE)
        steps = _of(num_inference_steps, defaults.num_inference_steps)
        ids = self.edge.tokenize(prompt, negative_prompt, self._tokenizers)
        requests = [
            MediaRequest(
                **terms.fields(self.name, index, n),
                token_ids=ids.token_ids,
                negative_token_ids=ids.negative_token_ids,
                width=width,
                height=height,
                num_frames=check_integer("num_frames", _of(num_frames, defaults.num_frames), 1, MAX_FRAMES),
                num_inference_steps=check_integer("num_inference_steps", steps, 1, MAX_STEPS),
                guidance_scale=float(guidance),
                seed=first_seed + index,
                fps=check_integer("fps", _of(fps, defaults.fps), 1, MAX_FPS),
                pixel_type=_check_pixel_type(pixel_type),
            )
            for index in range(n)
        ]
        nearest = nearest_size((width, height), self.edge.limits)
        if nearest != (width, height):
            raise invalid_size("size", f"{width}x{height}", self.edge.limits, nearest)
        wrong = self.edge.validate(requests[0])
        if wrong is not None:
            raise wrong
        return requests


def wanted_size(size: str | Sequence[int] | None) -> tuple[int, int] | None:
    """As `parse_size`; None: it is the model's to say, because nothing was said, or 'auto'."""
    return None if size is None or (isinstance(size, str) and size.strip().lower() == "auto") else parse_size(size)


def parse_size(size: str | Sequence[int]) -> tuple[int, int]:
    """Width and height from "WxH" or a pair.

    Raises:
        InvalidRequest: neither.
    """
    is_pair = isinstance(size, Sequence) and not isinstance(size, str) and len(size) == 2
    match = _SIZE.fullmatch("x".join(map(str, size)) if is_pair else str(size))
    if match is not None:
        return int(match[1]), int(match[2])
    text = f"Invalid 'size': {shown(size)}. Allowed: 'auto', or 'WIDTHxHEIGHT' in pixels, such as '512x512'."
    raise InvalidRequest("size", text)


def nearest_size(size: tuple[int, int], limits: Limits) -> tuple[int, int]:
    """The valid width and height that are closest."""
    width, height = size
    return (
        _nearest(width, limits.multiple, limits.max_width),
        _nearest(height, limits.multiple, limits.max_height),
    )


def _nearest(value: int, multiple: int, largest: int) -> int:
    rounded = (2 * value + multiple) // (2 * multiple) * multiple
    return min(max(rounded, multiple), largest // multiple * multiple)


def invalid_size(param: str, value: object, limits: Limits, nearest: tuple[int, int]) -> InvalidRequest:
    """The error for a field that gives a size which the model cannot make."""
    text = f"Invalid '{param}': {value}. Width and height have to be multiples of {limits.multiple}, at most "
    text += f"{limits.max_width}x{limits.max_height}. The nearest size that is valid is '{nearest[0]}x{nearest[1]}'."
    return InvalidRequest(param, text)


def _of(value: Any, default: Any) -> Any:
    return default if value is None else value


def _check_pixel_type(value: Any) -> PixelType:
    for allowed in ("uint8", "float32"):
        if value == allowed:
            return allowed
    raise InvalidRequest("pixel_type", f"Invalid 'pixel_type': {value!r}. Allowed: {', '.join(get_args(PixelType))}.")
