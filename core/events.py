"""What a user can be shown. Every request ends with exactly one Finished or Failed.

Frames travel as plain bytes, so that events need neither torch nor numpy and can cross a process border.
"""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls", "done"]


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the likeliest tokens at a position; `logprob` is natural, of the unscaled distribution."""

    token_id: int
    logprob: float


class Token(msgspec.Struct, frozen=True, tag="token"):
    """One generated token. `text` is what it adds to the answer: empty until its characters are complete.

    Runners leave `text` empty; the detokenizer fills it in on the way out.
    """

    request_id: str
    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()
    text: str = ""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """`done` of `total` steps of a phase are complete."""

    request_id: str
    phase: str
    done: int
    total: int


class Pixels(msgspec.Struct, frozen=True):
    """RGB frames, row by row: bytes of an array [num_frames, height, width, 3]."""

    data: bytes
    num_frames: int
    height: int
    width: int
    pixel_type: Literal["uint8", "float32"] = "uint8"


class Preview(msgspec.Struct, frozen=True, tag="preview"):
    """A rough look at an unfinished picture or clip."""

    request_id: str
    step: int
    pixels: Pixels


class Image(msgspec.Struct, frozen=True, tag="image"):
    """The finished picture."""

    request_id: str
    pixels: Pixels


class Video(msgspec.Struct, frozen=True, tag="video"):
    """The finished clip."""

    request_id: str
    pixels: Pixels
    fps: int


class Usage(msgspec.Struct, frozen=True):
    """What a request cost. `cached_tokens` of `prompt_tokens` were not computed again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    num_steps: int = 0


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The good end. `stop_reason` is the stop string or token id that matched, if any."""

    request_id: str
    reason: FinishReason
    usage: Usage = Usage()
    stop_reason: str | int | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The bad end; an abort is code `request_aborted`."""

    request_id: str
    code: str
    message: str


Final = Finished | Failed
Event = Token | Progress | Preview | Image | Video | Finished | Failed
