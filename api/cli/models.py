"""`hemiola models`: what can be served without a download."""

import argparse

from rich.console import Console
from rich.table import Table

from hemiola.core.errors import HemiolaError
from hemiola.core.hub import ModelSource, check_weights, declared_weights, known_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes no options."""


def run(options: argparse.Namespace) -> int:
    table = Table("name", "kind", "architecture", "parameters", "from")
    table.add_column("folder", overflow="fold")
    for source in known_models():
        table.add_row(source.name, source.kind, source.architecture, _size(source), source.origin, str(source.path))
    for column in table.columns[:-1]:
        column.no_wrap = True
    console = Console()
    if not console.is_terminal:  # whoever reads a pipe wants each model on one line, however long
        console = Console(width=console.measure(table, options=console.options.update(max_width=10_000)).maximum)
    console.print(table)
    return 0


def _size(source: ModelSource) -> str:
    """Parameters in millions, or the code of what is wrong with the files."""
    try:
        weights = check_weights(source) if source.load_format == "auto" else declared_weights(source)
    except HemiolaError as error:
        return error.code
    return "" if weights is None else f"{weights.num_params / 1e6:,.1f} M"
