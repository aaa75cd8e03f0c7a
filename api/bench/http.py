"""Tokens per second of chats streamed through a server of processes of its own, against the engine in this process.

All of it shares the machine: the client here, the server's front, its engine.
"""

import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import httpx

from hemiola.core.errors import HemiolaError

from ..asking import Asking
from ..client import Client
from ..engine import Engine
from .report import Report, in_turn, machine_name, rate, seconds

MODEL = "hemiola-tiny-chat"
NUM_STREAMS = 16
NUM_TOKENS = 128
TARGET = 0.85
_WORDS = (
    "fox apple river stone cloud garden winter candle bridge letter music forest silver window story dragon".split()
)
_STOP_S = 30.0
_SERVE = "import sys; from hemiola.api.cli import main; sys.exit(main())"


def run(*, repeats: int, threads: int) -> Report:
    """Sixteen chats at once, and one alone."""
    rng = random.Random(0)
    with Engine(MODEL, threads=threads) as engine, running_server([MODEL], threads) as url, Client(url) as client:

        def rated(calls: Asking, count: int) -> float:
            """Fresh prompts for every run, so that no more of them is in the prefix cache than their template."""
            asked = [" ".join(rng.choices(_WORDS, k=24)) for _ in range(count)]
            return count * NUM_TOKENS / seconds(lambda: _chat(calls, asked))

        many, many_here, one, one_here = in_turn(
            [
                lambda: rated(client, NUM_STREAMS),
                lambda: rated(engine, NUM_STREAMS),
                lambda: rated(client, 1),
                lambda: rated(engine, 1),
            ],
            repeats,
        )
    scenarios = (
        rate(f"{NUM_STREAMS} chats over HTTP against the engine here", many, "tokens/s", many_here, TARGET),
        rate("one chat over HTTP against the engine here", one, "tokens/s", one_here, None),
    )
    return Report("http", machine_name(), "float32", threads, scenarios)


def _chat(calls: Asking, asked: Sequence[str]) -> None:
    streams = [calls.stream_chat(text, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True) for text in asked]
    for stream in streams:
        assert stream.result().usage.completion_tokens == NUM_TOKENS


@contextmanager
def running_server(models: Sequence[str], threads: int, within_s: float = 120.0) -> Iterator[str]:
    """The address of a `hemiola serve` that is ready.

    Raises:
        HemiolaError: it is not, within that time.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _SERVE, "serve", *models, "--port", str(port), "--threads", str(threads)]
        process = subprocess.Popen([*command, "--data-dir", folder], stdout=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process, within_s)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):  # not listening yet
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    raise HemiolaError("The server did not become ready; what it wrote says why.")
