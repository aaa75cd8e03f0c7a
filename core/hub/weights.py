"""Weight files: which ones a model has, whether they are whole, and how many bytes they come to.

Reads headers only, so that a broken or missing shard is reported before anything is loaded, and "cannot fit" can be
said beforehand. Format: https://github.com/huggingface/safetensors#format. Knows no torch.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CorruptWeights, UnsupportedModel
from .dummies import declared_params
from .source import ModelSource, read_json

_DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
# Loading converts these to the engine's dtype; quantised and integer tensors stay as they are.
_CONVERTED = frozenset({"F64", "F32", "F16", "BF16"})
_BYTES_AS = {"float32": 4, "bfloat16": 2, "float16": 2}
_MAX_HEADER_BYTES = 100 << 20
# What transformers and diffusers look for first, in a model's or a component's folder.
_STEMS = ("model", "diffusion_pytorch_model")


@dataclass(frozen=True, slots=True)
class WeightSummary:
    """All weight files of a model, found whole; none for made-up weights. `bytes_by_dtype` has safetensors' names."""

    files: tuple[Path, ...]
    num_tensors: int
    bytes_by_dtype: Mapping[str, int]

    @property
    def num_bytes(self) -> int:
        """As they lie on disk."""
        return sum(self.bytes_by_dtype.values())

    @property
    def num_params(self) -> int:
        """Numbers stored, of whatever dtype."""
        return sum(nbytes * 8 // _DTYPE_BITS.get(dtype, 8) for dtype, nbytes in self.bytes_by_dtype.items())

    def bytes_as(self, dtype: str) -> int:
        """Bytes in memory once floating-point tensors are held as `dtype` (`float32`, `bfloat16`, `float16`)."""
        return sum(
            nbytes * 8 // _DTYPE_BITS[stored] * _BYTES_AS[dtype] if stored in _CONVERTED else nbytes
            for stored, nbytes in self.bytes_by_dtype.items()
        )


def made_up_weights(num_params: int) -> WeightSummary:
    """Of a model whose so many weights are random: of whatever dtype it will be held in."""
    return WeightSummary((), 0, {"BF16": 2 * num_params})


def declared_weights(source: ModelSource) -> WeightSummary | None:
    """Of a model whose hemiola.json says how many parameters it has; None if it says nothing.

    Raises:
        CorruptWeights: it says something else than numbers.
    """
    declared = declared_params(source.path)
    return None if declared is None else made_up_weights(sum(declared.values()))


def check_weights(source: ModelSource) -> WeightSummary:
    """Looks at every weight file of the model. A text encoder that is another model is not counted.

    Raises:
        CorruptWeights: a file is missing, truncated or not what its index says; the message names it.
        UnsupportedModel: the weights are there in a format that is not read.
    """
    if source.path.is_file():
        return _check_gguf(source.path)
    files: list[Path] = []
    tensors: list[tuple[str, int]] = []
    for folder in weight_folders(source):
        found, headers = _check_folder(folder)
        files += found
        tensors += headers
    bytes_by_dtype: Counter[str] = Counter()
    for dtype, nbytes in tensors:
        bytes_by_dtype[dtype] += nbytes
    return WeightSummary(tuple(files), len(tensors), dict(bytes_by_dtype))


def weight_folders(source: ModelSource) -> list[Path]:
    """The folders that hold weights: the model's own, or those of a pipeline's parts that are models."""
    if source.kind == "language":
        return [source.path]
    folders = []
    for name, _, class_name in source.components:
        folder = source.path / name
        if source.shared_encoder and name in ("text_encoder", "tokenizer"):
            continue
        if not folder.is_dir():
            raise CorruptWeights(f"{source.path} has no folder {name} ({class_name}), as model_index.json says.")
        if (folder / "config.json").is_file():  # schedulers and tokenizers have files of other names
            folders.append(folder)
    return folders


def _check_folder(folder: Path) -> tuple[list[Path], list[tuple[str, int]]]:
    files, index = _weight_files(folder)
    sizes: list[tuple[str, int]] = []
    owner_of: dict[str, str] = {}
    for file in files:
        header = read_header(file)
        owner_of.update(dict.fromkeys(header, file.name))
        for entry in header.values():
            first, last = entry["data_offsets"]
            sizes.append((entry["dtype"], last - first))
    for tensor, shard in index.items():
        if owner_of.get(tensor) != shard:
            raise CorruptWeights(f"{folder / shard}: tensor '{tensor}' is missing, though the index says it is there.")
    return files, sizes


def _weight_files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files to load from a folder, and which tensor lies in which of them where an index says so."""
    for stem in _STEMS:
        if (folder / f"{stem}.safetensors").is_file():
            return [folder / f"{stem}.safetensors"], {}
        index = folder / f"{stem}.safetensors.index.json"
        if index.is_file():
            return _indexed_files(index)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files, {}
    others = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in folder.glob(pattern))
    if others:
        raise UnsupportedModel(f"{folder} has weights as {_some(others)} only; safetensors and GGUF are read.")
    raise CorruptWeights(f"{folder} has no weight file (*.safetensors).")


def _indexed_files(index: Path) -> tuple[list[Path], dict[str, str]]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptWeights(f"{index} has no weight_map.")
    files = [index.parent / shard for shard in sorted(set(weight_map.values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise CorruptWeights(f"{index.parent}: {len(missing)} of {len(files)} shards are missing: {_some(missing)}.")
    return files, weight_map


def read_header(file: Path) -> dict[str, dict[str, Any]]:
    """The tensors of a safetensors file by name, each {dtype, shape, data_offsets}; checks that their bytes are there.

    Raises:
        CorruptWeights: says what is wrong with the file.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        header_len = int.from_bytes(start, "little")
        if start == b"version " and size < 1024:
            raise CorruptWeights(f"{file} is a Git LFS pointer, not the weights: fetch them with `git lfs pull`.")
        if len(start) < 8 or header_len > min(size - 8, _MAX_HEADER_BYTES):
            raise CorruptWeights(f"{file} is truncated or no safetensors file: {size} bytes hold no whole header.")
        text = stream.read(header_len)
    try:
        header = json.loads(text)
    except ValueError as error:
        raise CorruptWeights(f"{file} has a broken header: {error}") from error
    if not isinstance(header, dict):
        raise CorruptWeights(f"{file} has a broken header: it is no JSON object.")
    header.pop("__metadata__", None)
    end = _check_tensors(file, header)
    if size != 8 + header_len + end:
        state = "truncated" if size < 8 + header_len + end else "longer than its header says"
        raise CorruptWeights(f"{file} is {state}: {8 + header_len + end} bytes expected, {size} there.")
    return header


def _check_tensors(file: Path, header: Mapping[str, Any]) -> int:
    """Each tensor has the bytes of its shape, one behind the other; returns the bytes of them all."""
    try:
        spans = sorted((*entry["data_offsets"], name) for name, entry in header.items())
        expected = {
            name: math.prod(entry["shape"]) * _DTYPE_BITS[entry["dtype"]] // 8
            for name, entry in header.items()
            if entry["dtype"] in _DTYPE_BITS
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptWeights(f"{file} has a broken header: {error!r}") from error
    end = 0
    for first, last, name in spans:
        if first != end or last - first != expected.get(name, last - first):
            raise CorruptWeights(f"{file}: the bytes of tensor '{name}' are not those of its shape.")
        end = int(last)
    return end


def _check_gguf(file: Path) -> WeightSummary:
    """Magic and version only; whoever reads the format finds out the rest."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        magic, version = stream.read(4), int.from_bytes(stream.read(4), "little")
    if magic != b"GGUF" or version not in (2, 3):
        raise CorruptWeights(f"{file} is no GGUF file of version 2 or 3: it begins with {magic!r}, version {version}.")
    return WeightSummary((file,), 0, {"GGUF": size})


def _some(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
