"""`hemiola bench NAME [--json]`: exit status 1 when a ratio falls short of its target."""

import argparse
from collections.abc import Callable
from inspect import signature
from typing import Any

from hemiola.core.bounds import Bounds
from hemiola.core.errors import InvalidRequest

from ..bench import BENCHES, load
from ..front.media import MAX_STEPS
from .numbers import decimal, decimal_of, whole, whole_of

STEPS = Bounds(1, MAX_STEPS - 1)  # one more comes before what is measured
SECONDS = Bounds(0, 7 * 86_400, is_open=True)

# Options that only some benchmarks take: as `run` calls them -> as people do.
_SOME = {
    "models": "--model",
    "against": "--against",
    "rows": "--rows",
    "context": "--context",
    "tokens": "--tokens",
    "size": "--size",
    "steps": "--steps",
    "seconds": "--seconds",
    "share": "--share",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=BENCHES, help="; ".join(f"{name}: {what}" for name, what in BENCHES.items()))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--repeats", type=whole(Bounds(1, 1000)), default=3, help="rounds, of which medians are taken (default: 3)"
    )
    parser.add_argument("--threads", type=whole_of("threads"), default=1, help="CPU threads on both sides (default: 1)")
    some = parser.add_argument_group("for the benchmarks of published sizes (NAME-gpu)")
    some.add_argument("--model", dest="models", action="append", metavar="MODEL", help="instead of the default shapes")
    some.add_argument("--against", metavar="LIBRARY", help="text-gpu: transformers; image-gpu: diffusers")
    some.add_argument(
        "--rows",
        type=whole(Bounds(1, 4096)),
        action="append",
        metavar="N",
        help="requests that decode at the same time",
    )
    some.add_argument("--context", type=whole(Bounds(1, 1 << 20)), metavar="N", help="tokens of each prompt")
    some.add_argument("--tokens", type=whole(Bounds(1, 1 << 20)), metavar="N", help="to decode")
    some.add_argument("--size", metavar="WxH", help="of pictures and clips")
    some.add_argument("--steps", type=whole(STEPS), metavar="N", help="denoise steps")
    some.add_argument(
        "--share", type=decimal_of("media_sm_share"), metavar="X", help="of the SMs, what media has beside text"
    )
    some.add_argument("--seconds", type=decimal(SECONDS), metavar="S", help="how long the load lasts")


def run(options: argparse.Namespace) -> int:
    measure = load(options.name)
    report = measure(repeats=options.repeats, threads=options.threads, **_taken(measure, options))
    if options.json:
        print(report.to_json())
    else:
        report.show()
    return 0 if report.ratio >= 1 else 1


def _taken(measure: Callable[..., object], options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given.

    Raises:
        InvalidRequest: the benchmark does not take one of them.
    """
    takes = signature(measure).parameters
    given = {name: getattr(options, name) for name in _SOME if getattr(options, name) is not None}
    for name in given:
        if name not in takes:
            allowed = ", ".join(option for each, option in _SOME.items() if each in takes) or "none of these"
            raise InvalidRequest(_SOME[name], f"'{options.name}' takes no '{_SOME[name]}'. Allowed: {allowed}.")
    return given
