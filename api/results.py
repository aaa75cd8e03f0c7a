"""What a finished call gives: text, pictures, clips. Plain values; nothing here knows an engine or a server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL.Image import Image as PILImage

from hemiola.core.events import Finished, Pixels, Token, Usage
from hemiola.diffusion import media

from .inline import animated, media_tag


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called; `arguments` is the JSON text exactly as it was generated."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One generated answer. `text` is without reasoning and tool calls; `raw_text` is all that was generated.

    `reasoning_tokens` of the completion tokens went into reasoning.
    """

    text: str
    finish_reason: str
    token_ids: tuple[int, ...]
    usage: Usage
    raw_text: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str | int | None = None
    tokens: tuple[Token, ...] = field(default=(), repr=False)
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    """What a model thinks of one of several choices: the log probability of each of its tokens, given those before.

    Fields:
        tokens: what the tokens are: their ids, or texts where only a server knows ids.
        unconditional: the same log probabilities where no prompt is before the choice; empty if nobody asked.
    """

    choice: str
    logprobs: tuple[float, ...]
    tokens: tuple[int | str, ...] = ()
    unconditional: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """Log probability of the whole choice: the longer, the lower."""
        return sum(self.logprobs)

    @property
    def mean(self) -> float:
        """Per token, so that long and short choices can be compared."""
        return self.total / len(self.logprobs)

    @property
    def gain(self) -> float:
        """Per token, how much likelier the prompt makes the choice than it is anyway."""
        return (self.total - sum(self.unconditional)) / len(self.logprobs)


@dataclass(frozen=True, slots=True)
class Scores:
    """Of all choices, in the order in which they were given. `usage` counts the prompt once."""

    model: str
    scores: tuple[Score, ...]
    usage: Usage

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores)

    def __getitem__(self, choice: str) -> Score:
        """Of that choice; KeyError if it was none."""
        return {score.choice: score for score in self.scores}[choice]


def total_usage(usages: Sequence[Usage], answers_per_prompt: int) -> Usage:
    """Of all answers of a call, in order; a prompt counts once, as it was for the first answer to it."""
    firsts = usages[::answers_per_prompt]
    return Usage(
        sum(usage.prompt_tokens for usage in firsts),
        sum(usage.cached_tokens for usage in firsts),
        sum(usage.completion_tokens for usage in usages),
        sum(usage.num_steps for usage in usages),
    )


@dataclass(frozen=True, slots=True)
class Completion:
    """The answers of a chat or completion call: `answers_per_prompt` for each prompt; `str()` gives the first."""

    model: str
    answers: tuple[Answer, ...]
    answers_per_prompt: int = 1

    @property
    def text(self) -> str:
        return self.answers[0].text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.answers[0].tool_calls

    @property
    def finish_reason(self) -> str:
        return self.answers[0].finish_reason

    @property
    def usage(self) -> Usage:
        """Each prompt counted once, completion tokens summed."""
        return total_usage([answer.usage for answer in self.answers], self.answers_per_prompt)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Picture:
    """One finished picture and the seed that made it."""

    pixels: Pixels = field(repr=False)
    seed: int

    @property
    def image(self) -> PILImage:
        """As a PIL image."""
        image: PILImage = media.to_pil(self.pixels)
        return image

    def save(self, path: str | Path) -> Path:
        """Writes PNG, JPEG or WebP, by the file's ending."""
        target = Path(path)
        self.image.save(target)
        return target

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        seed = "" if self.seed < 0 else f", seed {self.seed}"
        return media_tag(media.to_bytes(self.pixels), "image/png", f"{self.pixels.width}x{self.pixels.height}{seed}")


@dataclass(frozen=True, slots=True)
class ImageResult:
    """The pictures of an image call, one per `n`."""

    model: str
    pictures: tuple[Picture, ...]
    finished: tuple[Finished, ...] = field(repr=False)

    @property
    def image(self) -> PILImage:
        return self.pictures[0].image

    @property
    def images(self) -> list[PILImage]:
        return [picture.image for picture in self.pictures]

    def save(self, path: str | Path) -> Path:
        """Writes the first picture."""
        return self.pictures[0].save(path)

    def _repr_html_(self) -> str:
        """What a notebook shows: all pictures."""
        return "\n".join(picture._repr_html_() for picture in self.pictures)

    def __iter__(self) -> Iterator[Picture]:
        return iter(self.pictures)


@dataclass(frozen=True, slots=True)
class VideoResult:
    """A finished clip."""

    model: str
    pixels: Pixels = field(repr=False)
    fps: int
    seed: int
    finished: Finished = field(repr=False)

    @property
    def frames(self) -> list[PILImage]:
        """As PIL images, in order."""
        frames: list[PILImage] = media.to_frames(self.pixels)
        return frames

    @property
    def array(self) -> Any:
        """As a numpy array [num_frames, height, width, 3]."""
        return media.to_numpy(self.pixels)

    def save(self, path: str | Path) -> Path:
        """Writes an MP4 (H.264)."""
        target = Path(path)
        target.write_bytes(self.to_mp4())
        return target

    def to_mp4(self) -> bytes:
        """As an MP4 (H.264).

        Raises:
            ValueError: odd width or height, which such files cannot have.
        """
        return media.to_mp4(self.pixels, self.fps)

    def _repr_html_(self) -> str:
        """What a notebook shows: a clip that plays, as an animated picture where no MP4 can have its size."""
        size = self.pixels
        title = f"{size.width}x{size.height}, {size.num_frames} frames, {self.fps} per second"
        if size.width % 2 or size.height % 2:
            return media_tag(animated(self.frames, self.fps), "image/webp", title)
        return media_tag(self.to_mp4(), "video/mp4", title)
