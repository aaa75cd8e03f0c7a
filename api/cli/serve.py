"""`hemiola serve MODEL ...`: the models behind HTTP, with the API that OpenAI's clients speak."""

import argparse
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hemiola.core.bounds import Bounds
from hemiola.core.config import MEMORY_FRACTION
from hemiola.core.errors import InvalidRequest

from ..http.app import create_app
from ..http.settings import Settings
from ..jobs import DataFolderInUse, StorageFailed, check_data_folder
from ..served import MAX_QUEUE, ServedEngine
from ..serving import Serving, listen, url_of
from ..wire import StartReport
from .numbers import decimal, whole
from .options import add_engine_settings, engine_config, given

PORTS = Bounds(0, 65_535)
_SHOWN_AS_MEMORY = frozenset({"memory_bytes", "host_bytes", "activations", "graph_bytes"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="folders, Hugging Face ids, name=path (default: the built-in models)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all (default: %(default)s)"
    )
    parser.add_argument("--port", type=whole(PORTS), default=8000, help="0 for any that is free (default: %(default)s)")
    parser.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="opens the server; or @FILE, one a line; may be given several times (default: none is needed)",
    )
    parser.add_argument(
        "--max-queue", type=whole(MAX_QUEUE), default=256, metavar="N", help="requests that may wait (default: 256)"
    )
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="where pictures and clips are kept")
    parser.add_argument("--strict-params", action="store_true", help="refuse unknown fields instead of ignoring them")
    parser.add_argument(
        "--memory-fraction",
        type=decimal(MEMORY_FRACTION),
        metavar="F",
        help="size of the arena as a share of the device's memory",
    )
    add_engine_settings(parser)


def run(options: argparse.Namespace) -> int:
    console = Console()
    if options.memory_fraction is not None and options.memory_mib is not None:
        raise InvalidRequest("--memory-fraction", "Give --memory-fraction or --memory-mib, not both.")
    settings = Settings(
        api_keys=read_keys(options.api_key or ()), strict_params=options.strict_params, **given(options, "data_dir")
    )
    listener = listen(options.host, options.port)
    engine = ServedEngine(
        *options.models,
        config=engine_config(options),
        memory_fraction=options.memory_fraction,
        max_queue=options.max_queue,
        log_level=options.log_level,
        on_line=lambda line: console.print(f"{line} ...", style="dim", highlight=False),
    )

    def tell(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False)

    def show(report: StartReport) -> None:
        console.print(start_table(engine, report))
        url = url_of(listener)
        tell(f"Ready after {report.seconds:.1f} s: {url} (OpenAI clients: base_url={url}/v1). Ctrl-C stops.")

    with closing(listener), closing(engine):
        check_data_dir(settings.data_dir)
        Serving(
            engine,
            create_app(engine, settings),
            listener,
            on_ready=show,
            say=tell,
            has_access_log=options.log_level in ("debug", "info"),
        ).run()
    return 0


def check_data_dir(folder: Path) -> None:
    """Looks at where results shall be kept before any work is done; the folder is made if it is not there.

    Raises:
        InvalidRequest: nothing can be written there, or another server has it.
    """
    try:
        check_data_folder(folder)
    except (DataFolderInUse, StorageFailed) as error:
        raise InvalidRequest("--data-dir", f"Invalid '--data-dir': {error.message}") from error


def read_keys(given_keys: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Keys as they are, and those of files: `@path`, one a line, without empty ones and comments.

    Raises:
        InvalidRequest: a file cannot be read, has no key, or a key is empty.
    """
    keys: list[str] = []
    for each in given_keys:
        found = _keys_in(Path(each[1:])) if each.startswith("@") else [each]
        if not found or not all(found):
            raise InvalidRequest("api_key", f"Invalid 'api_key': '{each}' has no key.")
        keys += found
    return tuple(dict.fromkeys(keys))


def _keys_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidRequest("api_key", f"The file of keys {path} cannot be read: {error.strerror}.") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def start_table(engine: ServedEngine, report: StartReport) -> Table:
    """What runs: models, kernels, memory and other settings."""
    table = Table("what", "which", "details", title="Hemiola", title_justify="left")
    for source in engine.sources:
        table.add_row(f"{engine.fronts[source.name].kind} model", source.name, source.architecture)
    backends: dict[str, list[str]] = {}
    for operation, backend in report.kernels.items():
        backends.setdefault(backend, []).append(operation.replace("_", " "))
    for backend, operations in backends.items():
        table.add_row("kernels", backend, ", ".join(operations))
    for line in report.settings:
        name, _, value = line.partition(": ")
        if name not in _SHOWN_AS_MEMORY:
            table.add_row("setting", name.replace("_", " "), value)
    for entry in report.memory:
        table.add_row("memory", entry.what, f"{entry.mib}: {entry.why}")
    return table
