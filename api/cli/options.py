"""Options that several commands share, and what they make of them: an engine here, or a client of a server."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hemiola.core.config import (
    DTYPES,
    LOAD_FORMATS,
    MAX_FRAME_PIXELS,
    MAX_FRAMES,
    MAX_PIXELS,
    MEDIA_SM_SHARE,
    EngineConfig,
)
from hemiola.core.errors import InvalidRequest
from hemiola.scheduler.policy import POLICIES

from .numbers import decimal_of, mib_of, whole_of

if TYPE_CHECKING:
    from ..asking import Asking
    from ..calls import Calls
    from ..client import Client
    from ..engine import Engine
    from ..stream import Stream

# What sets up an engine: option -> as if it had not been given.
_ENGINE_OPTIONS = {
    "device": "auto",
    "dtype": "auto",
    "memory_mib": None,
    "threads": None,
    "policy": "deadline",
    "load_format": "auto",
    "max_batch_tokens": None,
    "max_pixels": MAX_PIXELS,
    "max_frame_pixels": MAX_FRAME_PIXELS,
    "max_frames": MAX_FRAMES,
    "activation_mib": None,
    "media_sm_share": MEDIA_SM_SHARE,
}


def add_engine_options(parser: argparse.ArgumentParser, *, model_help: str) -> None:
    """--model and everything that sets up an engine."""
    parser.add_argument("--model", "-m", action="append", metavar="MODEL", help=model_help)
    add_engine_settings(parser)


def add_engine_settings(parser: argparse.ArgumentParser) -> None:
    """Everything that sets up an engine but its models."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", choices=("auto", *DTYPES))
    parser.add_argument(
        "--memory-mib", type=mib_of("memory_bytes"), metavar="N", help="size of the arena (default: 512 on a CPU)"
    )
    parser.add_argument(
        "--threads", type=whole_of("threads"), metavar="N", help="CPU threads (default: all cores but one)"
    )
    parser.add_argument(
        "--policy", default="deadline", help=f"order of steps: {', '.join(POLICIES)} (default: %(default)s)"
    )
    parser.add_argument("--load-format", default="auto", choices=LOAD_FORMATS, help="dummy: random weights")
    parser.add_argument(
        "--max-batch-tokens", type=whole_of("max_batch_tokens"), metavar="N", help="of one forward of a language model"
    )
    parser.add_argument(
        "--max-pixels",
        type=whole_of("max_pixels"),
        default=MAX_PIXELS,
        metavar="N",
        help="of a picture (default: %(default)s)",
    )
    parser.add_argument(
        "--max-frame-pixels",
        type=whole_of("max_frame_pixels"),
        default=MAX_FRAME_PIXELS,
        metavar="N",
        help="of a frame of a clip (default: %(default)s)",
    )
    parser.add_argument(
        "--max-frames",
        type=whole_of("max_frames"),
        default=MAX_FRAMES,
        metavar="N",
        help="of a clip (default: %(default)s)",
    )
    parser.add_argument(
        "--activation-mib",
        type=mib_of("activation_bytes"),
        metavar="N",
        help="kept for activations on a GPU, for text and for media each",
    )
    parser.add_argument(
        "--media-sm-share",
        type=decimal_of("media_sm_share"),
        default=MEDIA_SM_SHARE,
        metavar="X",
        help="of a GPU's SMs, what media has while text is at work (default: %(default)s)",
    )


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """--url and --api-key: a server instead of an engine here."""
    parser.add_argument("--url", help="ask the server at this address; without it, an engine is started here")
    parser.add_argument("--api-key", metavar="KEY", help="with --url: if the server wants one")


def engine_config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        device=options.device,
        dtype=options.dtype,
        memory_bytes=None if options.memory_mib is None else options.memory_mib << 20,
        threads=options.threads,
        policy=options.policy,
        load_format=options.load_format,
        max_batch_tokens=options.max_batch_tokens,
        max_pixels=options.max_pixels,
        max_frame_pixels=options.max_frame_pixels,
        max_frames=options.max_frames,
        activation_bytes=None if options.activation_mib is None else options.activation_mib << 20,
        media_sm_share=options.media_sm_share,
    )


def open_engine(options: argparse.Namespace, default_model: str) -> "Engine":
    """The engine that the options describe."""
    from ..engine import Engine  # imports torch: only once a command really needs it

    return Engine(*(options.model or [default_model]), config=engine_config(options))


def open_calls(options: argparse.Namespace, default_model: str) -> "Engine | Client":
    """The engine or the server that the options name.

    Raises:
        InvalidRequest: they name both.
    """
    if options.url is None:
        if options.api_key is not None:
            raise InvalidRequest("--api-key", "Invalid '--api-key': only allowed with '--url'.")
        return open_engine(options, default_model)
    for name, default in _ENGINE_OPTIONS.items():
        if getattr(options, name) != default:
            option = f"--{name.replace('_', '-')}"
            raise InvalidRequest(option, f"Invalid '{option}': with '--url', that is up to the server.")
    if options.model and len(options.model) > 1:
        raise InvalidRequest("--model", "Invalid '--model': with '--url', name one at most.")
    from ..client import Client

    return Client(options.url, options.api_key)


def check_call(
    options: argparse.Namespace, default_model: str, kind: str, call: "Callable[[Asking], Stream[Any]]"
) -> None:
    """Makes the call on the edge alone, so that a mistake in it is told before any model is loaded.

    Args:
        kind: what the call makes: text, image, video.

    Raises:
        HemiolaError: as the call itself. A server's edge is its own: with `--url` nothing is looked at.
    """
    if options.url is not None:
        return
    from ..rehearsal import Rehearsal

    with Rehearsal(options.model or [default_model], engine_config(options)) as rehearsal:
        check_makes(rehearsal, kind, default_model)
        call(rehearsal)


def check_makes(calls: "Calls", kind: str, example: str) -> None:
    """
    Raises:
        InvalidRequest: not one of the models that were named makes that, or several do, and none could be meant.
    """
    from ..calls import A_KIND

    able = [f"'{name}'" for name, front in calls.fronts.items() if front.kind == kind]
    if len(able) == 1:
        return
    named = ", ".join(f"'{name}'" for name in calls.fronts)
    if able:
        fault = f"each of {', '.join(able)} makes {A_KIND[kind]}"
    else:
        fault = f"{named} makes no {kind}" if len(calls.fronts) == 1 else f"none of {named} makes {A_KIND[kind]}"
    allowed = f"one model that makes {A_KIND[kind]}, such as {example}"
    raise InvalidRequest("--model", f"Invalid '--model': {fault}. Allowed: {allowed}.")


def model_asked(options: argparse.Namespace) -> dict[str, Any]:
    """Which of a server's models is meant, if that was said; an engine here has only one."""
    return {"model": options.model[0]} if options.url is not None and options.model else {}


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the named options that were set."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def check_output(path: Path, endings: Iterable[str]) -> None:
    """Looks at where a result shall go before any work is done.

    Raises:
        InvalidRequest: the folder does not exist, or the file's ending is none of these.
    """
    allowed = sorted(endings)
    if path.suffix.lower() not in allowed:
        raise InvalidRequest("output", f"Cannot write '{path}'. Allowed endings: {', '.join(allowed)}.")
    if not path.parent.is_dir():
        raise InvalidRequest("output", f"Cannot write '{path}': there is no folder '{path.parent}'.")
