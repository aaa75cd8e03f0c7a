"""Named tensors in safetensors files of at most 16 MiB, with one JSON record beside the tensors.

Small files travel and resume more easily; a checkpoint is therefore cut in parts `stem-0.safetensors`, ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

PART_BYTES = 16 * 2**20 - 64 * 2**10  # room for the header


def save_parts(directory: Path, stem: str, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> list[Path]:
    """Writes the parts (the record goes into every one) and removes older ones of the same stem."""
    parts: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        assert size <= PART_BYTES, f"{name} alone has {size} bytes"
        if used + size > PART_BYTES:
            parts.append({})
            used = 0
        parts[-1][name] = tensor.detach().cpu().contiguous()
        used += size
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob(f"{stem}-*.safetensors"):
        old.unlink()
    paths = [directory / f"{stem}-{index}.safetensors" for index in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        save_file(part, path, metadata={"format": "pt", "record": json.dumps(record), "parts": str(len(parts))})
    return paths


def load_parts(directory: Path, stem: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the record of `save_parts`; raises FileNotFoundError when a part is missing."""
    tensors: dict[str, Tensor] = {}
    paths = sorted(directory.glob(f"{stem}-*.safetensors"))
    metadata: dict[str, str] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors |= {name: file.get_tensor(name) for name in list(file.keys())}
    if not paths or len(paths) != int(metadata["parts"]):
        raise FileNotFoundError(f"{directory}: {len(paths)} of {metadata.get('parts', '?')} parts of {stem!r}")
    return tensors, json.loads(metadata["record"])


def forget_origins(folder: Path) -> None:
    """Drops where each part was loaded from, paths of the machine that made the folder."""
    for path in folder.glob("*/config.json"):
        config = json.loads(path.read_text(encoding="utf-8"))
        if config.pop("_name_or_path", None) is not None:
            path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
