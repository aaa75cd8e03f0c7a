"""What can be asked of an engine. A Request is frozen and was validated once, at the edge.

Requests hold token ids, never text: templates and tokenizers belong to the edge. `n` answers are n Requests
that share a `group`; nothing below the edge knows of n.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

PixelType = Literal["uint8", "float32"]


class ProgramShare(msgspec.Struct, frozen=True, kw_only=True):
    """The program that a request is a part of: several requests that were asked for as one, some after others.

    Fields:
        id: of the program. What is kept for it is kept until it is said to have ended.
        behind_s: predicted seconds of the longest chain of requests that cannot begin before this one has ended.
        keeps_prefix: others of the program will begin with what this one computes.
    """

    id: str
    behind_s: float = 0.0
    keeps_prefix: bool = False


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and how soon it matters: all that scheduling may know of a request.

    Fields:
        id: unique within an engine.
        model: the served name.
        tenant: fair shares are kept between tenants.
        service_class: a key of `core.service.SERVICE_CLASSES`.
        priority: lower runs earlier; 0 is ordinary.
        arrival_s: seconds on the engine's clock.
        deadline_s: seconds after arrival by which all of it is wanted, or None for the class's own target.
        group, index: which answer of a request for several this is.
        program: what it is a part of, if it is not asked for alone.
    """

    id: str
    model: str
    tenant: str = "default"
    service_class: str = "interactive"
    priority: int = 0
    arrival_s: float = 0.0
    deadline_s: float | None = None
    group: str | None = None
    index: int = 0
    program: ProgramShare | None = None

    @property
    def behind_s(self) -> float:
        """Predicted seconds of what waits for its end: it is due so much earlier."""
        return 0.0 if self.program is None else self.program.behind_s


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen.

    Fields:
        temperature: 0 is greedy.
        top_p: nucleus, in (0, 1]; 1 is off.
        top_k: 0 is off.
        seed: the whole random stream of the request; it never depends on load.
        max_tokens: tokens generated at most, >= 1.
        stop_token_ids: any of these ends the answer with reason `stop` and is not shown (the end-of-turn tokens).
        stop: strings that end the answer; looked for by the detokenizer, not by the runner.
        logprobs: None, or how many of the likeliest tokens to report beside the chosen one (0..20).
        forced_token_ids: the answer begins with these, whatever the model would choose; their log probabilities say
            what it thinks of them.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_tokens: int = 256
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    forced_token_ids: tuple[int, ...] = ()


class TextRequest(Terms, frozen=True, kw_only=True, tag="text"):
    """Continue `token_ids` (length >= 1). `cache_salt` separates prefix caches that must not be shared."""

    token_ids: tuple[int, ...]
    sampling: Sampling = Sampling()
    cache_salt: str = ""


class MediaRequest(Terms, frozen=True, kw_only=True, tag="media"):
    """Make one picture (`num_frames` 1) or one clip.

    Fields:
        token_ids, negative_token_ids: per text encoder of the family, as its `tokenize` gave them.
        width, height: pixels, multiples of what the family says.
        num_frames: frames on the family's grid (4k+1 for Wan); 1 for pictures.
        num_inference_steps: denoise steps.
        guidance_scale: classifier-free guidance in the family's own convention; the family says what is "off".
        seed: latents come from a CPU generator with this seed.
        fps: only carried along, for whoever writes the file.
        pixel_type: `uint8`, or `float32` in [0, 1] for comparisons.
    """

    token_ids: Mapping[str, tuple[int, ...]]
    negative_token_ids: Mapping[str, tuple[int, ...]] = {}
    width: int
    height: int
    num_frames: int = 1
    num_inference_steps: int
    guidance_scale: float
    seed: int = 0
    fps: int = 16
    pixel_type: PixelType = "uint8"
    service_class: str = "standard"


Request = TextRequest | MediaRequest
