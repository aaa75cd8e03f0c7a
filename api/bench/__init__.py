"""Benchmarks that anyone can run: `hemiola bench NAME`. Each compares with what one would use instead, in one run."""

from collections.abc import Callable
from importlib import import_module

from .report import Report

BENCHES = {
    "text": "tokens per second of the chat model, against transformers' generate",
    "image": "seconds per picture, against diffusers' pipeline",
    "prefix": "prompt tokens computed, with the prefix cache against without",
    "mixed": "time between tokens beside pictures and a clip, against whole steps in between",
    "http": "tokens per second of chats through a server, against the engine in this process",
    "programs": "picture books as programs, against the same calls made one after the other",
    "overhead": "the engine's own CPU time per step",
    "text-gpu": "decode and prefill at published sizes, against the device's limits",
    "image-gpu": "denoise steps at published sizes, against the device's limits",
    "mixed-gpu": "decoding beside denoising at published sizes, against each alone",
    "serve-gpu": "chats through a server beside pictures and clips at published sizes, against the chats alone",
    "soak-gpu": "a mixed load with random aborts: what ends, fails or leaks",
}


def load(name: str) -> Callable[..., Report]:
    """The benchmark's `run(options)`."""
    run: Callable[..., Report] = import_module(f"{__name__}.{name.replace('-', '_')}").run
    return run
