"""What a pipeline has built before its first request: kernels of its three stages, and the graphs of its usual layout.

They are built by running them: one request of the default size goes through the runner, with nobody else there, once on
each share of the SMs that steps may get.
"""

import logging
from collections.abc import Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hemiola.core.errors import StepFailed
from hemiola.core.request import MediaRequest
from hemiola.core.step import Blocks, Refused, Shortfall, Slot
from hemiola.core.warm_up import WarmUp

if TYPE_CHECKING:
    from .edge import Edge
    from .runner import DiffusionRunner
    from .state import DiffusionState

log = logging.getLogger(__name__)

CAPTURED_ON_RUN = 2
"""Sooner than among users' requests: the first run has made all that is made on first use."""
PROMPT_LEN = 24
_FIRST_S, _NEXT_S = 60.0, 15.0


def warm_ups(runner: "DiffusionRunner") -> Iterable[WarmUp]:
    """See `core.warm_up.HasWarmUps`. Nothing is compiled or captured on a CPU."""
    if runner.device.type == "cpu":
        return
    request = usual_request(runner.edge, runner.model)
    size = f"{request.width}x{request.height}" + (f", {request.num_frames} frames" if request.num_frames > 1 else "")
    seconds = _FIRST_S
    for sm_share in runner.sm_shares:
        of = "" if sm_share == 1.0 else f" on {sm_share:.0%} of the SMs"
        yield WarmUp(f"{runner.model}: {size}{of}", seconds, partial(run_request, runner, request, sm_share))
        seconds = _NEXT_S


def usual_request(edge: "Edge", model: str) -> MediaRequest:
    """The defaults, or what comes nearest to them and is allowed."""
    defaults, limits = edge.defaults, edge.limits
    width, height = min(defaults.width, limits.max_width), min(defaults.height, limits.max_height)
    while limits.max_pixels is not None and width * height > limits.max_pixels:
        width, height = (max(side // 2 // limits.multiple, 1) * limits.multiple for side in (width, height))
    ids = edge.tokenize("", "", {each.name: _MadeUpTokens() for each in edge.encoders})
    return MediaRequest(
        id="warm-up",
        model=model,
        token_ids=ids.token_ids,
        negative_token_ids=ids.negative_token_ids,
        width=width,
        height=height,
        num_frames=min(defaults.num_frames, limits.max_frames),
        num_inference_steps=CAPTURED_ON_RUN,
        guidance_scale=defaults.guidance_scale,
        fps=defaults.fps,
    )


def run_request(runner: "DiffusionRunner", request: MediaRequest, sm_share: float) -> None:
    """Runs all of a request's steps, and forgets it. Where it does not fit, that is said and nothing is built."""
    state = runner.admit(request)
    if isinstance(state, Refused | Shortfall):
        log.warning("'%s' is not warmed up: a request of the default size has no room here (%s).", runner.model, state)
        return
    if runner.graphs is not None:
        runner.graphs.captured_on_run = CAPTURED_ON_RUN
    try:
        _give_hidden_states(runner, state)
        sequences = count()
        while not state.is_decoded:
            _run_step(runner, state, Slot(runner.lane, sm_share, next(sequences), 0.0))
    finally:
        if runner.graphs is not None:
            runner.graphs.captured_on_run = type(runner.graphs).captured_on_run
        runner.release(state)
        runner.forget_conditions(state.job.prompt_keys)
        if runner.batching is not None:
            runner.batching.forget()


def _run_step(runner: "DiffusionRunner", state: "DiffusionState", slot: Slot) -> None:
    cut = state.cut
    batch = runner.plan([state], Blocks(cut.first, cut.last))
    if isinstance(batch, Shortfall):
        raise StepFailed(f"'{runner.model}' has no room for a {state.phase} step of the default size: {batch}")
    clock = runner.clock
    with clock.launching(slot):
        pending = runner.launch(batch, slot)
    pending.wait()
    clock.completed(slot.lane, slot.sequence)
    runner.collect(batch, pending)


def _give_hidden_states(runner: "DiffusionRunner", state: "DiffusionState") -> None:
    """In place of those that another model was asked for: it has warm-ups of its own."""
    for key, encoding in state.encodings.items():
        encoding.release()
        shape = (len(key.token_ids), runner.encoder_hidden_size)
        zeros = torch.zeros(shape, dtype=runner.family.condition_dtype, device=runner.device)
        state.encodings[key] = _MadeUpStates(zeros)


class _MadeUpStates:
    """See `core.text_encoder.Encoding`."""

    is_done = True
    error = None

    def __init__(self, hidden_states: Tensor) -> None:
        self.hidden_states = hidden_states

    def release(self) -> None:
        """Nobody else has it."""


class _MadeUpTokens:
    """A tokenizer for the length of its prompts. See `edge.base.TextTokenizer`."""

    def encode(self, text: str, max_len: int) -> tuple[int, ...]:
        return tuple(range(1, min(PROMPT_LEN, max_len) + 1))

    def render_chat(self, messages: list[dict[str, str]], **options: bool) -> str:
        return ""
