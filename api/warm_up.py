"""The first requests of an engine, before any user's: small ones that reach every kernel the served models use.

Compiled kernels, allocator pools and the cost model's first guesses must not be paid for by somebody who waits. What
can be built without a request was built before (`Composition.warm`).
"""

import logging
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from hemiola.core.events import Event, Failed, Final
from hemiola.core.request import Request
from hemiola.core.warm_up import WarmUp

from .front.media import MediaFront
from .front.terms import CallTerms
from .front.text import TextFront
from .loop import EngineLoop

log = logging.getLogger(__name__)

_PROMPT_SHARE = 1 / 16  # of the tokens that a step may have: costs of long prompts are no guess then
_NUM_TOKENS = 4
_NUM_STEPS = 2
_MAX_SIDE = 256
_SECOND_ROUND_WITHIN_S = 60.0


def line_of(warm_up: WarmUp) -> str:
    """What people are told before it is built."""
    return f"Building {warm_up.name} (about {warm_up.seconds:.0f} s)"


class FirstRequests:
    """Runs them through a loop that nobody else uses yet.

    Args:
        max_batch_tokens: of a step of a language model.
        forget: called on the loop's thread when they are over: nothing of them shall be seen in figures or caches.

    `deliver` takes the loop's events meanwhile.
    """

    def __init__(
        self,
        loop: EngineLoop,
        fronts: Mapping[str, TextFront | MediaFront],
        max_batch_tokens: int,
        forget: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._requests = partial(warm_up_requests, fronts, max(1, round(_PROMPT_SHARE * max_batch_tokens)))
        self._forget = forget
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.deliver = self._events.put

    def run(self) -> None:
        """Twice, unless it takes long: the first round's times say little, so the cost model learns from the second.

        Raises:
            EngineDied: the loop has ended.
        """
        began_s = time.monotonic()
        self._run_all(list(self._requests(0)))
        self._loop.call(lambda scheduler: scheduler.costs.forget())
        if time.monotonic() - began_s < _SECOND_ROUND_WITHIN_S:
            self._run_all(list(self._requests(1)))
        self._loop.ask(lambda _: self._forget())

    def _run_all(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._loop.submit(request)
        for _ in requests:
            while not isinstance(event := self._events.get(), Final):
                pass
            if isinstance(event, Failed):
                log.warning("Warming up: %s (%s)", event.message, event.code)


def warm_up_requests(fronts: Mapping[str, TextFront | MediaFront], prompt_len: int, number: int) -> Iterator[Request]:
    """For each model: text drawn and greedy, beside each other; a small picture or clip of few steps.

    Args:
        number: of the round. No two prompts begin alike, so that each is computed.
    """
    for front in fronts.values():
        if isinstance(front, TextFront):
            yield from _text(front, prompt_len, number)
        else:
            yield _media(front)


def _text(front: TextFront, prompt_len: int, number: int) -> Iterator[Request]:
    length = min(prompt_len, front.context_len - _NUM_TOKENS)
    for start, temperature in enumerate((0.0, 0.8), start=1 + 2 * number):
        ids = [i % front.tokenizer.vocab_size for i in range(start, start + length)]
        yield from front.completion_requests(
            ids, CallTerms(), max_tokens=_NUM_TOKENS, temperature=temperature, top_p=0.9, seed=0, ignore_eos=True
        )


def _media(front: MediaFront) -> Request:
    limits, defaults = front.edge.limits, front.edge.defaults
    (request,) = front.requests(
        "warm up",
        CallTerms(),
        size=tuple(_small(side, limits.multiple) for side in (defaults.width, defaults.height)),
        num_frames=min(defaults.num_frames, limits.frame_multiple + 1, limits.max_frames),
        num_inference_steps=_NUM_STEPS,
        seed=0,
    )
    return request


def _small(side: int, multiple: int) -> int:
    """A side that is allowed, of at most `_MAX_SIDE` pixels where that can be."""
    return multiple * max(1, min(side, _MAX_SIDE) // multiple)
