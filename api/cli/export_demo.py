"""`hemiola export-demo FOLDER`: the built-in models as stock transformers and diffusers load them."""

import argparse
from pathlib import Path

from hemiola.core.hub import DEMO_MODELS, resolve_all

from ..export import export_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a new folder is made in it for each model")


def run(options: argparse.Namespace) -> int:
    served = resolve_all(DEMO_MODELS)
    for source in served:
        export_model(source, served, options.folder / source.name)
        print(options.folder / source.name)
    return 0
