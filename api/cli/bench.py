"""`hemiola bench NAME [--json]`: exit status 1 when a ratio falls short of its target."""

import argparse

from ..bench import BENCHES, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=BENCHES, help="; ".join(f"{name}: {what}" for name, what in BENCHES.items()))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which medians are taken (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads on both sides (default: 1)")


def run(options: argparse.Namespace) -> int:
    report = load(options.name)(repeats=options.repeats, threads=options.threads)
    if options.json:
        print(report.to_json())
    else:
        report.show()
    return 0 if report.ratio >= 1 else 1
