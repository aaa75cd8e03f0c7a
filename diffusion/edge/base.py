"""What may be asked of a diffusion pipeline, judged at the edge before anything is allocated. No torch.

An Edge is the torch-free half of a family: defaults, multiples, limits, and what a prompt becomes for its text
encoders. It knows files, never weights, leases or steps.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol

from hemiola.core.errors import InvalidRequest, UnsupportedModel
from hemiola.core.request import MediaRequest

from .files import PipelineFiles
from .footprint import Footprint

Ids = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request that leaves something out gets; `max_sequence_length` is in tokens of the text encoder."""

    width: int
    height: int
    num_inference_steps: int
    guidance_scale: float
    max_sequence_length: int
    num_frames: int = 1
    fps: int = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of requests. Sizes are pixels and multiples of `multiple`; frames are k * `frame_multiple` + 1.

    `max_pixels` is width times height.
    """

    multiple: int
    max_width: int
    max_height: int
    max_frames: int = 1
    frame_multiple: int = 1
    max_steps: int = 1000
    max_pixels: int | None = None


@dataclass(frozen=True, slots=True)
class PromptIds:
    """Token ids per text encoder, as a MediaRequest carries them."""

    token_ids: Ids
    negative_token_ids: Ids


@dataclass(frozen=True, slots=True)
class Encoder:
    """A text encoder: what its ids are called in requests, and the folders of its weights and of its tokenizer."""

    name: str
    component: str
    tokenizer: str


class TextTokenizer(Protocol):
    """What an edge needs of a tokenizer; `PromptTokenizer` is one."""

    def encode(self, text: str, max_len: int) -> tuple[int, ...]: ...

    def render_chat(self, messages: list[dict[str, str]], **options: bool) -> str: ...


class Edge(ABC):
    """Base of the families' edges. Subclasses set the class fields and pass defaults and limits.

    A pipeline whose hemiola.json shares a text encoder has only that one.
    """

    kind: Literal["image", "video"]
    encoders: tuple[Encoder, ...] = (Encoder("text_encoder", "text_encoder", "tokenizer"),)

    def __init__(self, files: PipelineFiles, defaults: Defaults, limits: Limits) -> None:
        self.files = files
        self.limits = limits
        self._own_max_frames = limits.max_frames
        self.defaults = _overridden(defaults, files)
        # A shared encoder judges its own prompts.
        self._vocab_sizes: dict[str, int] = {}
        if files.shared_encoder is None:
            self._vocab_sizes = {each.name: files.config(each.component)["vocab_size"] for each in self.encoders}

    @property
    def encoder(self) -> str:
        """The name of the first text encoder, which most families have alone."""
        return self.encoders[0].name

    def restrict(self, max_pixels: int, max_frames: int, max_frame_pixels: int | None = None) -> None:
        """Narrows what may be asked to what memory was laid out for.

        Args:
            max_pixels: of a picture; of a clip's frame, too, unless `max_frame_pixels` says so.
        """
        frames = min(self.limits.max_frames, max_frames)
        if self.kind == "video" and max_frame_pixels is not None:
            max_pixels = max_frame_pixels
        self.limits = replace(self.limits, max_pixels=max_pixels, max_frames=frames)

    @abstractmethod
    def footprint(self, itemsize: int) -> Footprint:
        """What steps take at most of a device within the limits, in weights of so many bytes each."""

    @property
    def most_pixels(self) -> int:
        """Of a picture or frame."""
        limits = self.limits
        return min(limits.max_width * limits.max_height, limits.max_pixels or limits.max_width * limits.max_height)

    @property
    def most_frames(self) -> str:
        """Of a clip, for people: with the setting that says so, where the model itself makes more."""
        largest = self.limits.max_frames
        return f"{largest} ('max_frames')" if largest < self._own_max_frames else str(largest)

    def tokenize(self, prompt: str, negative: str, tokenizers: Mapping[str, TextTokenizer]) -> PromptIds:
        """Exactly the ids that diffusers' pipeline feeds to its text encoders."""
        names = [each.name for each in self.encoders]
        positive, negative_ids = (
            {name: self.prompt_ids(text, tokenizers[name], name) for name in names} for text in (prompt, negative)
        )
        return PromptIds(positive, negative_ids)

    @abstractmethod
    def prompt_ids(self, text: str, tokenizer: TextTokenizer, encoder: str) -> tuple[int, ...]:
        """Exactly the ids that diffusers' pipeline feeds to that text encoder for this text."""

    @abstractmethod
    def is_guided(self, guidance_scale: float) -> bool:
        """Whether the negative prompt is computed at all."""

    def validate(self, request: MediaRequest) -> InvalidRequest | None:
        """What is wrong with the request, if anything: names the field, its value and what is allowed."""
        try:
            self._check_size("width", request.width, self.limits.max_width)
            self._check_size("height", request.height, self.limits.max_height)
            self._check_pixels(request.width, request.height)
            self._check_frames(request.num_frames)
            _check_range("num_inference_steps", request.num_inference_steps, 1, self.limits.max_steps)
            if not (math.isfinite(request.guidance_scale) and request.guidance_scale >= 0):
                raise _invalid("guidance_scale", request.guidance_scale, "a finite number >= 0")
            _check_range("seed", request.seed, -(2**63), 2**64 - 1)
            self._check_prompt("token_ids", request.token_ids)
            if self.is_guided(request.guidance_scale):
                self._check_prompt("negative_token_ids", request.negative_token_ids)
        except InvalidRequest as error:
            return error
        return None

    @abstractmethod
    def check_prompt_ids(self, param: str, ids: tuple[int, ...], encoder: str) -> None:
        """Raises InvalidRequest unless that text encoder takes so many tokens."""

    def _check_prompt(self, param: str, ids: Ids) -> None:
        for encoder in self.encoders:
            self._check_ids(param, ids.get(encoder.name, ()), encoder.name)

    def _check_ids(self, param: str, ids: tuple[int, ...], encoder: str) -> None:
        if not ids:
            raise InvalidRequest(param, f"Invalid '{param}': no tokens for '{encoder}'. At least one is needed.")
        size = self._vocab_sizes.get(encoder)
        if size is not None and not 0 <= min(ids) <= max(ids) < size:
            raise InvalidRequest(param, f"Invalid '{param}'. Allowed for '{encoder}': token ids from 0 to {size - 1}.")
        self.check_prompt_ids(param, ids, encoder)

    def _check_size(self, param: str, value: int, largest: int) -> None:
        multiple = self.limits.multiple
        if not multiple <= value <= largest or value % multiple:
            raise _invalid(param, value, f"multiples of {multiple} from {multiple} to {largest}")

    def _check_pixels(self, width: int, height: int) -> None:
        largest = self.limits.max_pixels
        if largest is not None and width * height > largest:
            size = f"{width}x{height}, which are {width * height:,} pixels"
            setting = "max_frame_pixels" if self.kind == "video" else "max_pixels"
            raise _invalid("size", size, f"{largest:,} at most ('{setting}')")

    def _check_frames(self, value: int) -> None:
        step, largest = self.limits.frame_multiple, self.limits.max_frames
        if not 1 <= value <= largest or (value - 1) % step:
            allowed = self.most_frames if largest == 1 else f"{step}k+1 from 1 to {self.most_frames}"
            raise _invalid("num_frames", value, allowed)


def _invalid(param: str, value: object, allowed: str) -> InvalidRequest:
    return InvalidRequest(param, f"Invalid '{param}': {value}. Allowed: {allowed}.")


def _check_range(param: str, value: int, smallest: int, largest: int) -> None:
    if not smallest <= value <= largest:
        raise _invalid(param, value, f"{smallest} to {largest}")


def _overridden(defaults: Defaults, files: PipelineFiles) -> Defaults:
    """Defaults with those of hemiola.json, whose unknown names are refused."""
    given = files.extras.get("defaults", {})
    known = {field.name for field in fields(Defaults)}
    if unknown := sorted(set(given) - known):
        path, allowed = files.folder / "hemiola.json", ", ".join(sorted(known))
        raise UnsupportedModel(f"{path}: unknown defaults {', '.join(unknown)}. Known: {allowed}.")
    return replace(defaults, **given)
