"""From messages or prompts to validated TextRequests, and from events to answers. No torch; reads only small files."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hemiola.core.errors import ContextTooLong, InvalidRequest
from hemiola.core.events import Event, Finished, Token
from hemiola.core.request import Sampling, TextRequest
from hemiola.llm.chat_template import ChatTemplate
from hemiola.llm.detokenize import Detokenizer
from hemiola.llm.tokenizer import TextTokenizer

from ..results import Answer, ToolCall
from .answers import parse_answer
from .terms import CallTerms, check_integer, check_number

MAX_N = 128
MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20


class TextFront:
    """The edge of one served language model."""

    kind = "text"

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.tokenizer = TextTokenizer(folder)
        self.template = ChatTemplate(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.context_len: int = config.get("text_config", config).get("max_position_embeddings", 2048)
        self._generation = _generation_config(folder, config)

    def chat_requests(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        terms: CallTerms,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool = False,
        **sampling: Any,
    ) -> list[TextRequest]:
        """`n` requests that answer a conversation; a string is one user message. See `requests` for the rest.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        if not given:
            raise InvalidRequest("messages", "Invalid 'messages': empty. At least one is needed.", "empty_array")
        text = self.template.render(given, tools=tools or None, enable_thinking=enable_thinking)
        return self.requests(self.tokenizer.encode(text), terms, param="messages", **sampling)

    def completion_requests(self, prompt: str | Sequence[int], terms: CallTerms, **sampling: Any) -> list[TextRequest]:
        """`n` requests that continue a text, or token ids as they are. See `requests` for the rest."""
        ids = (
            self.tokenizer.encode(prompt, add_special_tokens=True)
            if isinstance(prompt, str)
            else [self._checked_id(i) for i in prompt]
        )
        return self.requests(ids, terms, param="prompt", **sampling)

    def requests(
        self,
        token_ids: Sequence[int],
        terms: CallTerms,
        *,
        param: str = "prompt",
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        n: int = 1,
        logprobs: int | None = None,
        ignore_eos: bool = False,
        cache_salt: str = "",
    ) -> list[TextRequest]:
        """`n` requests with seeds `seed`, `seed + 1`, ...; what is left out is as the model's generation config says.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        room = self.context_len - len(token_ids)
        if not token_ids:
            raise InvalidRequest(param, f"Invalid '{param}': no tokens. At least one is needed.", "empty_array")
        if room < 1:
            raise ContextTooLong(param, context_message(self.context_len, len(token_ids), max_tokens or 1))
        wanted = room if max_tokens is None else min(room, check_integer("max_tokens", max_tokens, 1, 2**31))
        defaults = self._generation
        first_seed = random.getrandbits(32) if seed is None else check_integer("seed", seed, -(2**63), 2**63 - 1)
        sampling = Sampling(
            temperature=check_number("temperature", _of(temperature, defaults["temperature"]), 0.0, 2.0),
            top_p=_check_top_p(_of(top_p, defaults["top_p"])),
            top_k=max(check_integer("top_k", _of(top_k, defaults["top_k"]), -1, 2**31), 0),
            max_tokens=wanted,
            stop_token_ids=() if ignore_eos else defaults["stop_token_ids"],
            stop=_check_stop(stop),
            logprobs=None if logprobs is None else check_integer("logprobs", logprobs, 0, MAX_TOP_LOGPROBS),
        )
        check_integer("n", n, 1, MAX_N)
        ids = tuple(token_ids)
        return [
            TextRequest(
                **terms.fields(self.name, index, n),
                token_ids=ids,
                sampling=msgspec.structs.replace(sampling, seed=first_seed + index),
                cache_salt=cache_salt,
            )
            for index in range(n)
        ]

    def detokenizer(self, request: TextRequest) -> Detokenizer:
        """One that turns the request's tokens into text and looks for its stop strings."""
        return Detokenizer(self.tokenizer, request.sampling.stop)

    def is_thinking(self, request: TextRequest) -> bool:
        """Whether the prompt ends inside a think block, so that the answer begins with reasoning."""
        return self.tokenizer.decode(request.token_ids[-8:]).rstrip("\n").endswith("<think>")

    def _checked_id(self, token_id: Any) -> int:
        return check_integer("prompt", token_id, 0, self.tokenizer.vocab_size - 1)


def assemble_answers(
    front: TextFront, requests: Sequence[TextRequest], events: Sequence[Event], *, has_tools: bool = False
) -> tuple[Answer, ...]:
    """One answer per request, from all events of their stream."""
    return tuple(_answer(front, request, events, has_tools) for request in requests)


def _answer(front: TextFront, request: TextRequest, events: Sequence[Event], has_tools: bool) -> Answer:
    mine = [event for event in events if event.request_id == request.id]
    tokens = tuple(event for event in mine if isinstance(event, Token))
    (finished,) = [event for event in mine if isinstance(event, Finished)]
    raw = "".join(token.text for token in tokens)
    parsed = parse_answer(raw, is_thinking=front.is_thinking(request), has_tools=has_tools)
    calls = tuple(ToolCall(f"call_{request.id}_{i}", call.name, call.arguments) for i, call in enumerate(parsed.calls))
    return Answer(
        text=parsed.text,
        finish_reason="tool_calls" if calls and finished.reason == "stop" else finished.reason,
        token_ids=tuple(token.token_id for token in tokens),
        usage=finished.usage,
        raw_text=raw,
        reasoning=parsed.reasoning,
        tool_calls=calls,
        stop_reason=finished.stop_reason,
        tokens=tokens,
    )


def context_message(context_len: int, prompt_len: int, max_tokens: int) -> str:
    """The words by which clients recognise that the context is too small."""
    return (
        f"This model's maximum context length is {context_len} tokens. However, your prompt is too long: "
        f"{prompt_len + max_tokens} tokens ({prompt_len} in the messages, {max_tokens} in the completion). "
        "Please reduce the length of the messages or completion. (context_length_exceeded)"
    )


def _generation_config(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling defaults and end-of-turn ids; greedy where the model says that it does not sample."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    stops = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
    samples = generation.get("do_sample", True)
    return {
        "temperature": (generation.get("temperature") or 1.0) if samples else 0.0,
        "top_p": (generation.get("top_p") or 1.0) if samples else 1.0,
        "top_k": (generation.get("top_k") or 0) if samples else 0,
        "stop_token_ids": stops,
    }


def _check_stop(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise InvalidRequest("stop", f"Invalid 'stop': {stop!r}. Allowed: up to {MAX_STOPS} strings, none empty.")
    return stops


def _check_top_p(value: Any) -> float:
    if check_number("top_p", value, 0.0, 1.0) == 0:
        raise InvalidRequest("top_p", "Invalid 'top_p': 0. Expected a value > 0.", "decimal_below_min_value")
    return float(value)


def _of(value: Any, default: Any) -> Any:
    return default if value is None else value
