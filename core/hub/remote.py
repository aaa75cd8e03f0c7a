"""Models of the Hugging Face Hub: their snapshot in the local cache, downloaded first where that is allowed.

Only what Hemiola reads is downloaded: JSON, tokenizer and template files, then the safetensors files of the model or of
the pipeline's parts; never pickles, other frameworks' weights or duplicate precisions.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download

from ..config import Environment
from ..errors import HemiolaError
from .source import inspect

_REPO_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_DESCRIPTIONS = ["*.json", "*.jinja", "*.model", "*.txt", "README.md"]
_IGNORED = ["*.fp16.*", "*.bf16.*", "*.non_ema.*", "consolidated*", "original/*", "onnx/*"]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why there is no snapshot."""

    reason: str


def split_repo_id(text: str) -> tuple[str, str | None] | None:
    """`owner/name` or `owner/name@revision` in two; None if it cannot be a repository of the Hub."""
    match = _REPO_ID.fullmatch(text)
    return (match["repo"], match["revision"]) if match else None


def fetch_snapshot(text: str, environment: Environment) -> Path | Unavailable:
    """The folder of a model of the Hub (`owner/name[@revision]`), from the cache alone when offline."""
    parts = split_repo_id(text)
    if parts is None:
        return Unavailable("that is no name a model there can have")
    try:
        folder = _snapshot(*parts, environment, _DESCRIPTIONS)
        _snapshot(*parts, environment, _DESCRIPTIONS + _weight_patterns(folder))
    except (OSError, ValueError) as error:
        return Unavailable(_reason(error, environment))
    return folder


def cached_repo_ids(environment: Environment) -> list[str]:
    """The models in the local cache, whole or not."""
    folders = sorted(environment.hub_cache.glob("models--*"))
    return [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]


def _snapshot(repo: str, revision: str | None, environment: Environment, patterns: list[str]) -> Path:
    folder = snapshot_download(
        repo,
        revision=revision,
        cache_dir=environment.hub_cache,
        local_files_only=environment.is_offline,
        allow_patterns=patterns,
        ignore_patterns=_IGNORED,
    )
    return Path(folder)


def _weight_patterns(folder: Path) -> list[str]:
    """Which weight files to ask for, now that the descriptions are here."""
    try:
        source = inspect(folder, folder.name, "hub")
    except HemiolaError:
        # Not a layout that we know; perhaps its one GGUF file. The caller inspects again and says what is wrong.
        return ["*.gguf"]
    if source.kind == "language":
        # A leading `*` would reach into folders, where other formats live.
        return ["model*.safetensors"]
    return [f"{name}/*.safetensors" for name, _, _ in source.components]


def _reason(error: Exception, environment: Environment) -> str:
    if environment.is_offline:
        return f"HF_HUB_OFFLINE is set, and it is not (wholly) in the cache {environment.hub_cache}"
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return f"{type(error).__name__}: {first_line}"
