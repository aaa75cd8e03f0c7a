"""`hemiola chat`: a conversation in the terminal, or one answer to a message given on the command line."""

import argparse
from typing import Any

from rich.console import Console

from hemiola.core.events import Token

from .numbers import decimal, whole
from .options import add_engine_options, add_server_options, check_call, given, model_asked, open_calls


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message", nargs="?", help="answer this and stop; without it, a conversation starts")
    parser.add_argument("--system", help="the system message")
    parser.add_argument("--temperature", type=decimal())
    parser.add_argument("--top-p", type=decimal(), dest="top_p")
    parser.add_argument("--max-tokens", type=whole(), dest="max_tokens")
    parser.add_argument("--seed", type=whole())
    parser.add_argument("--think", action="store_true", help="let the model reason first")
    add_engine_options(parser, model_help="a language model (default: hemiola-tiny-chat)")
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    settings = {**model_asked(options), **given(options, "temperature", "top_p", "max_tokens", "seed")}
    if options.think:
        settings["enable_thinking"] = True
    messages: list[dict[str, Any]] = [{"role": "system", "content": options.system}] if options.system else []
    first = [*messages, {"role": "user", "content": "Hello." if options.message is None else options.message}]
    check_call(options, "hemiola-tiny-chat", "text", lambda calls: calls.stream_chat(first, **settings))
    with open_calls(options, "hemiola-tiny-chat") as engine:
        if options.message is not None:
            _answer(console, engine, messages, options.message, settings)
            return 0
        console.print("Say something; an empty line or Ctrl-D ends.", style="dim")
        while (message := _ask()).strip():
            _answer(console, engine, messages, message, settings)
    return 0


def _ask() -> str:
    try:
        return input("> ")
    except EOFError:
        return ""


def _answer(
    console: Console, engine: Any, messages: list[dict[str, Any]], message: str, settings: dict[str, Any]
) -> None:
    """Streams the answer and adds both turns to the conversation."""
    messages.append({"role": "user", "content": message})
    stream = engine.stream_chat(messages, **settings)
    for event in stream:
        if isinstance(event, Token):
            console.print(event.text, end="", markup=False, soft_wrap=True)
    answer = stream.result().answers[0]
    console.print()
    messages.append({"role": "assistant", "content": answer.text} | _reasoning(answer.reasoning))


def _reasoning(reasoning: str | None) -> dict[str, str]:
    return {} if reasoning is None else {"reasoning_content": reasoning}
