"""Where a model's weights come from: safetensors files, or random numbers of the right shapes.

Every tensor is asked for by name and shape, so that files that do not match the config are found out at load time.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...core.errors import CorruptWeights


class Tensors(Protocol):
    """Weights by name, converted to one dtype on one device."""

    device: torch.device

    def prefix_of(self, name: str) -> str:
        """What stands before `name` in the files: "model." in causal models, nothing in bare encoders."""
        ...

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor: ...


class FileTensors:
    """Weights in safetensors files."""

    def __init__(self, files: Sequence[Path], *, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._dtype = dtype
        self._folder = files[0].parent
        self._file_of: dict[str, Any] = {}
        for path in files:
            try:
                opened: Any = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise CorruptWeights(f"{path} cannot be read: {error}.") from error
            self._file_of.update(dict.fromkeys(opened.keys(), opened))

    def prefix_of(self, name: str) -> str:
        return next((prefix for prefix in ("model.", "") if prefix + name in self._file_of), "model.")

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._file_of:
            raise CorruptWeights(f"{self._folder}: tensor '{name}' is in no weight file, though the config needs it.")
        tensor: Tensor = self._file_of[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise CorruptWeights(
                f"{self._folder}: tensor '{name}' has the shape {list(tensor.shape)}; the config says {list(shape)}."
            )
        return tensor.to(self.device, self._dtype)


class DummyTensors:
    """Random weights, the same for the same name and shape, of the size that initialisation gives."""

    def __init__(self, *, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._dtype = dtype

    def prefix_of(self, name: str) -> str:
        return "model."

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=self._dtype, device=self.device)
        generator = torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))
        numbers = torch.empty(shape, dtype=torch.float32, device=self.device)
        return numbers.normal_(0.0, 0.02, generator=generator).to(self._dtype)
