"""From messages or prompts to validated TextRequests, and from events to answers. No torch; reads only small files."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hemiola.core.errors import ContextTooLong, CorruptWeights, InvalidRequest
from hemiola.core.events import Event, Finished, FinishReason, Token
from hemiola.core.hub import context_len, text_part
from hemiola.core.hub.source import read_json
from hemiola.core.request import Sampling, TextRequest
from hemiola.llm.chat_template import ChatTemplate
from hemiola.llm.detokenize import Detokenizer
from hemiola.llm.tokenizer import TextTokenizer

from ..results import Answer, ToolCall
from .answers import AnswerParser, Delta, collect
from .conversation import read_messages, split_begun
from .defaults import check_temperature, check_top_k, check_top_p, read_defaults
from .terms import CallTerms, check_flag, check_integer, check_text, wrong_type
from .tools import offered_tools

Messages = str | Sequence[Mapping[str, Any]]

_NOT_OPTIONS = frozenset({"self", "messages", "tools", "add_generation_prompt"})

MAX_N = 128
MAX_ANSWERS = 1024
MAX_STOPS = 16
MAX_SALT_LEN = 128
MAX_TOP_LOGPROBS = 20


class TextFront:
    """The edge of one served language model.

    Args:
        name: what it is served as.
        folder: the model's.
        tokenizer_folder: where tokenizer and chat template are, if they are another model's.

    Raises:
        ModelNotFound, CorruptWeights: there is no tokenizer that can be read, or it is none of this model's, or a
            config says what cannot be.
        UnsupportedModel: there is no telling how long the context is.
    """

    kind = "text"

    def __init__(self, name: str, folder: Path, tokenizer_folder: Path | None = None) -> None:
        self.name = name
        self.tokenizer = TextTokenizer(tokenizer_folder or folder)
        self.template = ChatTemplate(tokenizer_folder or folder)
        self.context_len = context_len(folder)
        self._defaults = read_defaults(folder)
        vocab_size = text_part(read_json(folder / "config.json")).get("vocab_size")
        if isinstance(vocab_size, int) and self.tokenizer.num_own_tokens > vocab_size:
            raise CorruptWeights(
                f"{folder / 'config.json'}: vocab_size is {vocab_size}, but the tokenizer has "
                f"{self.tokenizer.num_own_tokens} tokens."
            )

    def chat_requests(
        self,
        messages: Messages,
        terms: CallTerms,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        enable_thinking: bool = False,
        template_options: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        **sampling: Any,
    ) -> list[TextRequest]:
        """`n` requests that answer a conversation; a string is one user message. See `requests` for the rest.

        Args:
            tool_choice: "auto", "none", or {type: "allowed_tools", ...}.
            template_options: what else the model's template understands.
            continue_final_message: go on with the last message, which is the assistant's and has begun.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        if not isinstance(template_options, Mapping | None):
            raise wrong_type("template_options", "an object", template_options)
        options = {"enable_thinking": check_flag("enable_thinking", enable_thinking), **(template_options or {})}
        begun = ""
        if check_flag("continue_final_message", continue_final_message):
            messages, begun = split_begun(messages)
        text = self.render(messages, tools=offered_tools(tools, tool_choice), options=options) + begun
        ids = self.tokenizer.encode(check_text("messages", text))
        return self.requests([ids], terms, param="messages", **sampling)

    def render(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt of a conversation, by the model's template.

        Args:
            options: what the template understands, such as `enable_thinking`.
            add_generation_prompt: end with the beginning of an answer.

        Raises:
            InvalidRequest: names the message or option, or says what the template does.
        """
        for name in options or ():
            if name in _NOT_OPTIONS:
                text = f"Invalid 'chat_template_kwargs': '{name}' has a field of its own or is none of the template's."
                raise InvalidRequest("chat_template_kwargs", text)
        given = read_messages(
            messages,
            has_developer=self.template.mentions("developer"),
            arguments_as_text=self.template.mentions("arguments is string"),
        )
        return self.template.render(
            given, tools=tools or None, add_generation_prompt=add_generation_prompt, **(options or {})
        )

    def completion_requests(
        self,
        prompt: str | Sequence[int] | Sequence[str | Sequence[int]],
        terms: CallTerms,
        *,
        add_special_tokens: bool = True,
        **sampling: Any,
    ) -> list[TextRequest]:
        """Requests that continue a text, or token ids as they are, or several of either, `n` for each in turn.

        Args:
            add_special_tokens: begin texts as the model's plain prompts do.
        """
        check_flag("add_special_tokens", add_special_tokens)
        if not _is_array(prompt) and not isinstance(prompt, str):
            raise wrong_type("prompt", "a string or an array", prompt)
        prompts = [prompt] if isinstance(prompt, str) or _is_ids(prompt) else prompt
        return self.requests([self._prompt_ids(each, add_special_tokens) for each in prompts], terms, **sampling)

    def requests(
        self,
        prompts: Sequence[Sequence[int]],
        terms: CallTerms,
        *,
        param: str = "prompt",
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] = (),
        n: int = 1,
        logprobs: int | None = None,
        ignore_eos: bool = False,
        cache_salt: str = "",
    ) -> list[TextRequest]:
        """`n` requests for each prompt, with seeds `seed`, `seed + 1`, ...

        What is left out is as the model's generation config says. `max_tokens` is cut to what the context has room for.

        Args:
            prompts: token ids.
            stop_token_ids: end the answer, besides those that end the model's turn.

        Raises:
            InvalidRequest: names the field, the value and what is allowed.
        """
        if not prompts or not all(prompts):
            raise InvalidRequest(param, f"Invalid '{param}': no tokens. At least one is needed.", "empty_array")
        room = self.context_len - max(map(len, prompts))
        if room < 1:
            text = context_message(self.context_len, self.context_len - room, max_tokens or 1)
            raise ContextTooLong(param, text)
        if max_tokens is not None:
            max_tokens = check_integer("max_tokens", max_tokens, 1, self.context_len)
        defaults = self._defaults
        first_seed = random.getrandbits(32) if seed is None else check_integer("seed", seed, -(2**63), 2**63 - 1)
        if not _is_array(stop_token_ids):
            raise wrong_type("stop_token_ids", "an array of integers", stop_token_ids)
        _check_count("stop_token_ids", stop_token_ids, MAX_STOPS)
        ends = tuple(self._checked_id("stop_token_ids", i) for i in stop_token_ids)
        sampling = Sampling(
            temperature=check_temperature(_of(temperature, defaults.temperature)),
            top_p=check_top_p(_of(top_p, defaults.top_p)),
            top_k=check_top_k(_of(top_k, defaults.top_k)),
            stop_token_ids=ends if check_flag("ignore_eos", ignore_eos) else (*defaults.stop_token_ids, *ends),
            stop=check_stops(stop),
            logprobs=None if logprobs is None else check_integer("logprobs", logprobs, 0, MAX_TOP_LOGPROBS),
        )
        n = check_integer("n", n, 1, MAX_N)
        if len(prompts) * n > MAX_ANSWERS:
            text = f"Invalid '{param}': {len(prompts)} prompts with n={n}. At most {MAX_ANSWERS} answers are allowed."
            raise InvalidRequest(param, text, "array_above_max_length")
        return [
            TextRequest(
                **terms.fields(self.name, i * n + j, len(prompts) * n),
                token_ids=ids,
                sampling=msgspec.structs.replace(
                    sampling,
                    seed=_wrapped(first_seed + i * n + j),
                    max_tokens=min(self.context_len - len(ids), max_tokens or self.context_len),
                ),
                cache_salt=check_text("cache_salt", cache_salt, MAX_SALT_LEN),
            )
            for i, ids in enumerate(map(tuple, prompts))
            for j in range(n)
        ]

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The tokens that end the model's turn."""
        return self._defaults.stop_token_ids

    def detokenizer(self, request: TextRequest) -> Detokenizer:
        """One that turns the request's tokens into text and looks for its stop strings."""
        return Detokenizer(self.tokenizer, request.sampling.stop)

    def is_thinking(self, request: TextRequest) -> bool:
        """Whether the prompt ends inside a think block, so that the answer begins with reasoning."""
        return self.tokenizer.decode(request.token_ids[-8:]).rstrip("\n").endswith("<think>")

    def parser(self, request: TextRequest, *, has_tools: bool) -> AnswerParser:
        """One that takes the request's answer apart."""
        return AnswerParser(is_thinking=self.is_thinking(request), has_tools=has_tools)

    def _prompt_ids(self, prompt: Any, add_special_tokens: bool) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(check_text("prompt", prompt), add_special_tokens=add_special_tokens)
        if not _is_array(prompt):
            raise wrong_type("prompt", "a string or an array of tokens", prompt)
        return [self._checked_id("prompt", token_id) for token_id in prompt]

    def _checked_id(self, param: str, token_id: Any) -> int:
        return check_integer(param, token_id, 0, self.tokenizer.vocab_size - 1)


def assemble_answers(
    front: TextFront, requests: Sequence[TextRequest], events: Sequence[Event], *, has_tools: bool = False
) -> tuple[Answer, ...]:
    """One answer per request, from all events of their stream."""
    return tuple(_answer(front, request, events, has_tools) for request in requests)


def _answer(front: TextFront, request: TextRequest, events: Sequence[Event], has_tools: bool) -> Answer:
    mine = [event for event in events if event.request_id == request.id]
    tokens = tuple(event for event in mine if isinstance(event, Token))
    (finished,) = [event for event in mine if isinstance(event, Finished)]
    parser = front.parser(request, has_tools=has_tools)
    deltas: list[Delta] = []
    num_reasoning = 0
    for token in tokens:
        num_reasoning += parser.is_reasoning
        deltas += parser.feed(token.text)
    parsed = collect([*deltas, *parser.finish()], has_reasoning=parser.has_reasoning)
    calls = tuple(ToolCall(call_id(request.id, i), call.name, call.arguments) for i, call in enumerate(parsed.calls))
    return Answer(
        text=parsed.text,
        finish_reason=finish_reason(finished, has_calls=bool(calls)),
        token_ids=tuple(token.token_id for token in tokens),
        usage=finished.usage,
        raw_text="".join(token.text for token in tokens),
        reasoning=parsed.reasoning,
        tool_calls=calls,
        stop_reason=finished.stop_reason,
        tokens=tokens,
        reasoning_tokens=num_reasoning,
    )


def call_id(request_id: str, index: int) -> str:
    """What a tool call is called: no other has the same."""
    return f"call_{request_id}_{index}"


def finish_reason(finished: Finished, *, has_calls: bool) -> FinishReason:
    """An answer that calls tools and ends of itself says so; one that was cut off says that."""
    return "tool_calls" if has_calls and finished.reason == "stop" else finished.reason


def context_message(context_len: int, prompt_len: int, max_tokens: int) -> str:
    """The words by which clients recognise that the context is too small."""
    return (
        f"This model's maximum context length is {context_len} tokens. However, your prompt is too long: "
        f"{prompt_len + max_tokens} tokens ({prompt_len} in the messages, {max_tokens} in the completion). "
        "Please reduce the length of the messages or completion. (context_length_exceeded)"
    )


def check_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The strings that end an answer.

    Raises:
        InvalidRequest: names the one that is wrong, and what is allowed.
    """
    if not _is_array(stop) and not isinstance(stop, str | None):
        raise wrong_type("stop", "a string or an array of strings", stop)
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    _check_count("stop", stops, MAX_STOPS)
    for i, each in enumerate(stops):
        if not check_text("stop" if isinstance(stop, str) else f"stop[{i}]", each):
            text = f"Invalid 'stop': '' would end every answer. Allowed: up to {MAX_STOPS} strings, none empty."
            raise InvalidRequest("stop", text)
    return stops


def _check_count(param: str, array: Sequence[Any], largest: int) -> None:
    if len(array) > largest:
        text = f"Invalid '{param}': array too long. Expected {largest} at most, but got {len(array)}."
        raise InvalidRequest(param, text, "array_above_max_length")


def _is_array(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_ids(prompt: Sequence[Any]) -> bool:
    return bool(prompt) and not isinstance(prompt[0], str | Sequence)


def _wrapped(seed: int) -> int:
    """Within 64 bits with a sign, whatever was counted on."""
    return (seed + 2**63) % 2**64 - 2**63


def _of(value: Any, default: Any) -> Any:
    return default if value is None else value
