"""Exact scores of choices from other servers: completions that tell the log probabilities of a prompt.

vLLM, SGLang and others have `echo` with `logprobs`. Chats have nothing like it, so choices continue plain text alone.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hemiola.core.errors import InvalidRequest
from hemiola.core.events import Finished, Usage

from ..results import Score, Scores, total_usage
from .chunks import Costs
from .connection import Connection, read_json, to_json
from .text import Push

_PATH = "/v1/completions"
_ASKED = {"max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    text_offset: list[int]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""
    usage: Costs = msgspec.field(default_factory=Costs)


class _Echo:
    """Of one choice behind a prompt: the tokens of both.

    Fields:
        begin: where the first token begins that has a character of the choice; it may have some of the prompt too.
    """

    def __init__(self, prompt: str, choice: str, answer: _Answer) -> None:
        logprobs = answer.choices[0].logprobs if answer.choices else None
        if logprobs is None:
            raise _unsupported("tells no log probabilities of a prompt")
        self.choice = choice
        told = zip(logprobs.text_offset, logprobs.tokens, logprobs.token_logprobs, strict=False)
        self._tokens = [each for each in told if each[0] < len(prompt) + len(choice)]  # then comes what it adds
        if "".join(text for _, text, _ in self._tokens) != prompt + choice:
            raise _unsupported("does not repeat the prompt")
        self.begin = next(begin for begin, text, _ in self._tokens if begin + len(text) > len(prompt))

    def score(self, begin: int) -> Score:
        """From the token that begins there."""
        scored = [(text, logprob) for at, text, logprob in self._tokens if at >= begin]
        logprobs = tuple(logprob for _, logprob in scored if logprob is not None)
        if len(logprobs) != len(scored):
            text = "Nothing is before the choices, and no server scores a text's first token. Say something first."
            raise InvalidRequest("prompt", text)
        return Score(self.choice, logprobs, tuple(text for text, _ in scored))


async def read_echoed_scores(
    connection: Connection,
    choices: Sequence[str],
    model: str | None,
    request_id: str,
    push: Push,
    take: Callable[[Scores], None],
    *,
    prompt: str | None = None,
    unconditional: bool = False,
    **conversation: Any,
) -> None:
    """Asks for each choice behind the prompt, all at once, and tells the end.

    Where a choice's first characters join the prompt's last token, scoring begins at that token for all.

    Raises:
        HemiolaError: see `Connection.request`.
        InvalidRequest: the server cannot be asked that, or does not tell what was asked for.
    """
    if prompt is None:
        raise _unsupported("scores no choices in a conversation")
    if unconditional:
        raise _unsupported("scores nothing without a prompt, as scoring 'unconditional' needs", "scoring")
    asked = [_ask(connection, {"model": model, "prompt": prompt + choice, **_ASKED}) for choice in choices]
    answers = await asyncio.gather(*asked)
    echoes = [_Echo(prompt, choice, answer) for choice, answer in zip(choices, answers, strict=True)]
    begin = min(echo.begin for echo in echoes)
    usages = [Usage(answer.usage.prompt_tokens, 0, answer.usage.completion_tokens) for answer in answers]
    usage = total_usage(usages, len(usages))
    take(Scores(answers[0].model, tuple(echo.score(begin) for echo in echoes), usage))
    push(Finished(request_id, "stop", usage))


async def _ask(connection: Connection, body: dict[str, Any]) -> _Answer:
    async with connection.request("POST", _PATH, to_json(body)) as response:
        value = read_json(await response.aread())
    try:
        return msgspec.convert(value, _Answer)
    except msgspec.ValidationError as error:
        raise _unsupported(f"tells log probabilities in another way ({error})") from error


def _unsupported(why: str, param: str = "select") -> InvalidRequest:
    text = (
        f"'select' is not supported there: the server {why}. Allowed: select with scoring mean, sum or greedy in "
        "plain text, where completions have 'echo' with 'logprobs'; any select on an engine or a Hemiola server."
    )
    return InvalidRequest(param, text, "unsupported_parameter")
