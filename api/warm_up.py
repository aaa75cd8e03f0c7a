"""The first requests of an engine, before any user's: small ones that reach every kernel the served models use.

Compiled kernels, allocator pools and the cost model's first guesses must not be paid for by somebody who waits.
"""

from collections.abc import Iterator, Mapping

from hemiola.core.request import Request

from .front.media import MediaFront
from .front.terms import CallTerms
from .front.text import TextFront

_PROMPT_LEN = 24
_NUM_TOKENS = 4
_NUM_STEPS = 2
_MAX_SIDE = 256


def warm_up_requests(fronts: Mapping[str, TextFront | MediaFront]) -> Iterator[Request]:
    """For each model: text drawn and greedy, beside each other; a small picture or clip of few steps."""
    for front in fronts.values():
        if isinstance(front, TextFront):
            yield from _text(front)
        else:
            yield _media(front)


def _text(front: TextFront) -> Iterator[Request]:
    length = min(_PROMPT_LEN, front.context_len - _NUM_TOKENS)
    ids = [i % front.tokenizer.vocab_size for i in range(1, length + 1)]
    for temperature in (0.0, 0.8):
        yield from front.completion_requests(
            ids, CallTerms(), max_tokens=_NUM_TOKENS, temperature=temperature, top_p=0.9, seed=0, ignore_eos=True
        )


def _media(front: MediaFront) -> Request:
    limits, defaults = front.edge.limits, front.edge.defaults
    (request,) = front.requests(
        "warm up",
        CallTerms(),
        size=tuple(_small(side, limits.multiple) for side in (defaults.width, defaults.height)),
        num_frames=min(defaults.num_frames, limits.frame_multiple + 1),
        num_inference_steps=_NUM_STEPS,
        seed=0,
    )
    return request


def _small(side: int, multiple: int) -> int:
    """A side that is allowed, of at most `_MAX_SIDE` pixels where that can be."""
    return multiple * max(1, min(side, _MAX_SIDE) // multiple)
