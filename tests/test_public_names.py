"""What people may rely on: the package's names, the commands and their options, the benchmarks."""

import argparse
import subprocess
import sys
from importlib import import_module

import hemiola
from hemiola.api.bench import BENCHES
from hemiola.api.cli import COMMANDS
from hemiola.scheduler.policy import POLICIES

ENGINE_SETTINGS = {
    *("--device", "--dtype", "--memory-mib", "--threads", "--policy", "--load-format"),
    *(
        "--max-batch-tokens",
        "--max-pixels",
        "--max-frame-pixels",
        "--max-frames",
        "--activation-mib",
        "--media-sm-share",
    ),
}
ENGINE_OPTIONS = {"--model"} | ENGINE_SETTINGS
CALL_OPTIONS = ENGINE_OPTIONS | {"--url", "--api-key"}
MEDIA_OPTIONS = {"--output", "--size", "--steps", "--guidance", "--negative", "--seed"}
CALLS = {f"{manner}{kind}" for manner in ("", "a", "stream_") for kind in ("chat", "complete", "image", "video")}
OPTIONS = {
    "chat": {"--system", "--temperature", "--top-p", "--max-tokens", "--seed", "--think"} | CALL_OPTIONS,
    "image": MEDIA_OPTIONS | CALL_OPTIONS,
    "video": MEDIA_OPTIONS | CALL_OPTIONS | {"--frames", "--fps"},
    "demo": {"--output", "--seed"} | ENGINE_OPTIONS,
    "serve": {
        *("--host", "--port", "--api-key", "--max-queue", "--data-dir", "--strict-params", "--memory-fraction"),
        *ENGINE_SETTINGS,
    },
    "warmup": ENGINE_SETTINGS,
    "models": set(),
    "info": ENGINE_OPTIONS,
    "export-demo": set(),
    "bench": {
        *("--json", "--repeats", "--threads", "--model", "--against"),
        *("--rows", "--context", "--tokens", "--size", "--steps", "--seconds", "--share"),
    },
}
SCORES = {"scores", "ascores", "stream_scores"}


def test_the_public_names_are_these() -> None:
    assert sorted(hemiola.__all__) == [
        "Answer",
        "Batch",
        "BatchItem",
        "CallTerms",
        "Client",
        "Completion",
        "Engine",
        "EngineConfig",
        "Failed",
        "Finished",
        "Forks",
        "Gen",
        "HemiolaError",
        "Image",
        "ImageResult",
        "NodeFailed",
        "Picture",
        "Preview",
        "Program",
        "ProgramEvent",
        "Progress",
        "Run",
        "Score",
        "Scores",
        "State",
        "Stream",
        "Token",
        "Tool",
        "ToolCall",
        "Trace",
        "Variable",
        "Video",
        "VideoResult",
        "assistant",
        "edit_image",
        "gen",
        "gen_float",
        "gen_image",
        "gen_int",
        "gen_json",
        "gen_video",
        "image",
        "program",
        "select",
        "system",
        "tool",
        "user",
        "using",
        "video",
    ]
    assert all(getattr(hemiola, name).__name__ == name for name in hemiola.__all__)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, hemiola; print([m for m in ('torch', 'transformers', 'diffusers', 'PIL') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_engines_methods_are_these() -> None:
    of_servers = {"text_front", "media_front", "recent_steps", "end_program"}
    assert _methods(hemiola.Engine) == {"close", "composition", *CALLS, *SCORES, *of_servers}


def test_the_clients_methods_are_these() -> None:
    assert _methods(hemiola.Client) == {"close", *CALLS, *SCORES, "stream_program"}


def _methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_commands_and_their_options_are_these() -> None:
    assert set(COMMANDS) == set(OPTIONS)
    for name, wanted in OPTIONS.items():
        parser = argparse.ArgumentParser()
        import_module(f"hemiola.api.cli.{name.replace('-', '_')}").add_arguments(parser)
        options = {o for action in parser._actions for o in action.option_strings if o.startswith("--")}
        assert options - {"--help"} == wanted, name


def test_benchmarks_and_policies_are_these() -> None:
    assert set(BENCHES) == {
        *("text", "image", "prefix", "mixed", "http", "programs", "overhead"),
        *("text-gpu", "image-gpu", "mixed-gpu", "serve-gpu", "soak-gpu"),
    }
    assert set(POLICIES) == {"fcfs", "deadline", "round-robin"}
