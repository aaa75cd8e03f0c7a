"""`hemiola models`: what can be served without a download."""

import argparse

from rich.console import Console
from rich.table import Table

from hemiola.core.errors import HemiolaError
from hemiola.core.hub import check_weights, known_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes no options."""


def run(options: argparse.Namespace) -> int:
    table = Table("name", "kind", "architecture", "parameters", "from", "folder")
    for source in known_models():
        try:
            size = f"{check_weights(source).num_params / 1e6:.1f} M"
        except HemiolaError as error:
            size = error.code
        table.add_row(source.name, source.kind, source.architecture, size, source.origin, str(source.path))
    Console().print(table)
    return 0
