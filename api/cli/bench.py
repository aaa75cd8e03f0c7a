"""`hemiola bench NAME [--json]`: exit status 1 when a ratio falls short of its target."""

import argparse
from collections.abc import Callable
from inspect import signature
from typing import Any

from hemiola.core.errors import InvalidRequest

from ..bench import BENCHES, load

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
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which medians are taken (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads on both sides (default: 1)")
    some = parser.add_argument_group("for the benchmarks of published sizes (NAME-gpu)")
    some.add_argument("--model", dest="models", action="append", metavar="MODEL", help="instead of the default shapes")
    some.add_argument("--against", metavar="LIBRARY", help="text-gpu: transformers; image-gpu: diffusers")
    some.add_argument("--rows", type=int, action="append", metavar="N", help="requests that decode at the same time")
    some.add_argument("--context", type=int, metavar="N", help="tokens of each prompt")
    some.add_argument("--tokens", type=int, metavar="N", help="to decode")
    some.add_argument("--size", metavar="WxH", help="of pictures and clips")
    some.add_argument("--steps", type=int, metavar="N", help="denoise steps")
    some.add_argument("--share", type=float, metavar="X", help="of the SMs, what media has beside text")
    some.add_argument("--seconds", type=float, metavar="S", help="how long the load lasts")


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
        InvalidRequest: the benchmark does not take one of them, or it is no positive number.
    """
    if options.repeats < 1:
        raise InvalidRequest("--repeats", f"Invalid '--repeats': {options.repeats}. The least is 1.")
    takes = signature(measure).parameters
    given = {name: getattr(options, name) for name in _SOME if getattr(options, name) is not None}
    for name, value in given.items():
        if name not in takes:
            allowed = ", ".join(option for each, option in _SOME.items() if each in takes) or "none of these"
            raise InvalidRequest(_SOME[name], f"'{options.name}' takes no '{_SOME[name]}'. Allowed: {allowed}.")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and number <= 0:
                raise InvalidRequest(_SOME[name], f"Invalid '{_SOME[name]}': {number}. It has to be above 0.")
    return given
