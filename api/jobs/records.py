"""What is written down of a clip that was asked for, and of a file that was made. Plain values, stored as JSON."""

from typing import Literal

import msgspec

Status = Literal["queued", "in_progress", "completed", "failed"]
UNFINISHED: tuple[Status, ...] = ("queued", "in_progress")


class VideoAsk(msgspec.Struct, frozen=True, kw_only=True):
    """All that makes a clip: asked for again, it comes out the same. Fields as in `MediaFront.requests`."""

    model: str
    prompt: str
    negative_prompt: str = ""
    width: int
    height: int
    num_frames: int
    fps: int
    num_inference_steps: int
    guidance_scale: float
    seed: int
    tenant: str = "default"
    service_class: str | None = None
    priority: int = 0


class VideoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One clip, from being asked for to its files.

    Fields:
        model_alias: the model as the user named it; None if it was left out.
        seconds: as the user will read it, a number in a string.
        progress: percent, never falling; 100 only when completed.
        created_at, started_at, completed_at, expires_at: seconds since 1970; `expires_at` is set at the end.
        attempts: how often it was begun.
        inference_time_s: from being handed to the engine to the last pixel, in the attempt that succeeded.
        error_code, error_message: of a failed one.
    """

    id: str
    ask: VideoAsk
    seconds: str
    created_at: float
    status: Status = "queued"
    model_alias: str | None = None
    progress: int = 0
    started_at: float | None = None
    completed_at: float | None = None
    expires_at: float | None = None
    attempts: int = 0
    inference_time_s: float | None = None
    error_code: str | None = None
    error_message: str | None = None

    @property
    def is_unfinished(self) -> bool:
        return self.status in UNFINISHED

    @property
    def bytes_reserved(self) -> int:
        """What its files can come to: 1.5 bytes a pixel is what H.264 starts from, before it compresses anything."""
        return self.ask.width * self.ask.height * self.ask.num_frames * 3 // 2 if self.is_unfinished else 0


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the data folder, named by us.

    Fields:
        owner: the id of the clip, or of the set of pictures.
        variant: which of the owner's files it is: "video", "thumbnail", "0", "1", ...
        name: of the file, below `media/`.
        expires_at: seconds since 1970.
    """

    owner: str
    variant: str
    name: str
    media_type: str
    nbytes: int
    expires_at: float
