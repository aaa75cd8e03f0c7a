"""From choices to requests that force them, and from their events to scores: what a model thinks of each, exactly.

The choices of a call share the prompt in the prefix cache, and their tokens go through the model side by side. So do
the same tokens behind no prompt, where somebody wants to know how likely they are anyway.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from hemiola.core.errors import ContextTooLong, InvalidRequest
from hemiola.core.events import Event, Token
from hemiola.core.request import Sampling, TextRequest

from ..results import Score
from .conversation import split_begun
from .terms import CallTerms, check_text
from .text import MAX_ANSWERS, Messages, TextFront, context_message


def score_requests(
    front: TextFront,
    choices: Sequence[str],
    terms: CallTerms,
    *,
    messages: Messages | None = None,
    prompt: str | None = None,
    continue_final_message: bool = False,
    enable_thinking: bool = False,
    unconditional: bool = False,
) -> list[TextRequest]:
    """A request for each choice, which forces it as the answer to `messages` or the continuation of `prompt`.

    Where a choice's first characters would join the prompt's last token, scoring begins at that token for all.

    Args:
        unconditional: as many requests again, which force the same tokens at the beginning of a text.

    Raises:
        InvalidRequest: names the field, the value and what is allowed.
    """
    if isinstance(choices, str) or not choices or not all(isinstance(choice, str) and choice for choice in choices):
        raise InvalidRequest("choices", "Invalid 'choices'. Allowed: at least one string, none empty.")
    for choice in choices:
        check_text("choices", choice)
    most = MAX_ANSWERS // 2 if unconditional else MAX_ANSWERS
    if len(choices) > most:
        raise InvalidRequest("choices", f"Invalid 'choices': {len(choices)} of them. Allowed: {most} at most.")
    if (messages is None) == (prompt is None):
        raise InvalidRequest("prompt", "Say either 'messages' or 'prompt': choices answer or continue one of them.")
    text = prompt or ""
    if messages is not None:
        given, begun = split_begun(messages) if continue_final_message else (messages, "")
        text = front.render(given, options={"enable_thinking": enable_thinking}) + begun
    begins = messages is None  # a template writes the special tokens itself
    before = front.tokenizer.encode(text, add_special_tokens=begins)
    wholes = [front.tokenizer.encode(text + choice, add_special_tokens=begins) for choice in choices]
    num_shared = min(_num_common(before, whole) for whole in wholes)
    param = "prompt" if begins else "messages"
    for whole in wholes:
        if len(whole) > front.context_len:
            text = context_message(front.context_len, num_shared, len(whole) - num_shared)
            raise ContextTooLong(param, text)
    prompts = [whole[:num_shared] for whole in wholes]
    forced = [whole[num_shared:] for whole in wholes]
    if unconditional:
        prompts += len(wholes) * [_beginning(front)]
        forced += forced
    requests = front.requests(prompts, terms, param=param)
    return [
        msgspec.structs.replace(request, sampling=_forcing(token_ids))
        for request, token_ids in zip(requests, forced, strict=True)
    ]


def assemble_scores(
    requests: Sequence[TextRequest], choices: Sequence[str], events: Sequence[Event]
) -> tuple[Score, ...]:
    """One score per choice, from all events of their requests' stream."""
    found: dict[str, list[float]] = {request.id: [] for request in requests}
    for event in events:
        if isinstance(event, Token) and event.logprob is not None:
            found[event.request_id].append(event.logprob)
    logprobs = [tuple(found[request.id]) for request in requests]
    return tuple(
        Score(choice, mine, request.sampling.forced_token_ids, anyway)
        for choice, request, mine, anyway in zip(
            choices, requests, logprobs, logprobs[len(choices) :] or len(choices) * [()], strict=False
        )
    )


def _forcing(token_ids: Sequence[int]) -> Sampling:
    forced = tuple(token_ids)
    return Sampling(temperature=0.0, max_tokens=len(forced), logprobs=0, forced_token_ids=forced)


def _beginning(front: TextFront) -> list[int]:
    """What a text begins with before anything is said: the tokenizer's own beginning, or else the end of another."""
    ids = front.tokenizer.encode("", add_special_tokens=True) or list(front.end_ids[:1])
    if not ids:
        text = f"'{front.name}' has no token that begins or ends a text, so nothing can be scored without a prompt."
        raise InvalidRequest("unconditional", text)
    return ids


def _num_common(a: Sequence[Any], b: Sequence[Any]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
