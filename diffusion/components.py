"""The modules of a pipeline, loaded from local folders by the libraries that wrote them, or made up from the configs.

Checks what the libraries only warn of: weights that are missing, left over or of another shape are an error.
"""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hemiola.core.config import LoadFormat
from hemiola.core.errors import CorruptWeights, HemiolaError, UnsupportedModel
from hemiola.core.hub import one_line

from .edge import PipelineFiles

# Transformers' classes by name need no torch to be named; those of pipelines are a handful.
_TRANSFORMERS = {"Qwen3Model", "Qwen3ForCausalLM", "UMT5EncoderModel", "T5EncoderModel", "CLIPTextModel"}
_DIFFUSERS = {
    "AutoencoderKL",
    "AutoencoderKLWan",
    "FluxTransformer2DModel",
    "WanTransformer3DModel",
    "ZImageTransformer2DModel",
}
_DUMMY_SEED = 0


class Components:
    """Makes the modules that a family asks for, once each."""

    def __init__(
        self, files: PipelineFiles, *, dtype: torch.dtype, device: str | torch.device, load_format: LoadFormat
    ) -> None:
        self._files = files
        self._dtype = dtype
        self.device = torch.device(device)
        self._load_format = load_format

    def model(self, name: str) -> Any:
        """The module of that name in model_index.json, in evaluation mode, without gradients.

        Raises:
            ModelNotFound: its folder is missing.
            UnsupportedModel: a class that no family here uses.
            CorruptWeights: weights that cannot be read, or that are not those of the config.
        """
        library, class_name = self._declared(name)
        made = getattr(importlib.import_module(library), class_name)
        folder, dtype = self._files.component(name), self._dtype_of(name)
        with _quiet():
            is_dummy = self._load_format == "dummy"
            module = self._made_up_or_refused(made, name, dtype) if is_dummy else self._read(made, folder, dtype)
        return module.to(self.device).eval().requires_grad_(False)

    def _dtype_of(self, name: str) -> torch.dtype:
        """As asked; but an autoencoder that says so overflows in float16, whose range bfloat16 exceeds."""
        is_narrow = self._dtype == torch.float16
        return torch.float32 if is_narrow and self._files.config(name).get("force_upcast") else self._dtype

    def _declared(self, name: str) -> tuple[str, str]:
        entry = self._files.index.get(name)
        class_name = entry[1] if isinstance(entry, list) and len(entry) == 2 else None
        if class_name in _DIFFUSERS:
            return "diffusers", class_name
        if class_name in _TRANSFORMERS:
            return "transformers", class_name
        known = ", ".join(sorted(_DIFFUSERS | _TRANSFORMERS))
        raise UnsupportedModel(f"{self._files.folder}: '{name}' is {entry}. Supported classes: {known}.")

    def _read(self, made: Any, folder: Path, dtype: torch.dtype) -> nn.Module:
        options: dict[str, Any] = {"local_files_only": True, "use_safetensors": True, "output_loading_info": True}
        try:
            module, info = made.from_pretrained(folder, torch_dtype=dtype, **options)
        except HemiolaError:
            raise
        except Exception as error:  # whatever the libraries raise for files that are missing, cut short or wrong
            raise CorruptWeights(f"{folder} cannot be loaded as {made.__name__}: {one_line(error)}") from error
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            if found := list(info.get(problem, ())):
                shown = ", ".join(str(key) for key in found[:3])
                raise CorruptWeights(f"{folder}: {len(found)} {problem.replace('_', ' ')}, such as {shown}.")
        return module  # type: ignore[no-any-return]

    def _made_up_or_refused(self, made: Any, name: str, dtype: torch.dtype) -> nn.Module:
        try:
            return self._made_up(made, name, dtype)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the libraries raise for fields that are wrong
            path = self._files.component(name) / "config.json"
            raise CorruptWeights(f"{path} gives no {made.__name__}: {one_line(error)}") from error

    def _made_up(self, made: Any, name: str, dtype: torch.dtype) -> nn.Module:
        config = dict(self._files.config(name))
        gpus = [self.device] if self.device.type == "cuda" else []
        # In its dtype from the first: in float32 a large one would for a moment take more than the device has.
        with torch.random.fork_rng(devices=gpus), self.device, _default_dtype(dtype):
            if made.__module__.startswith("diffusers"):
                module: nn.Module = made.from_config(config)
            else:
                module = made(made.config_class.from_dict(config))
        fill(module, _DUMMY_SEED)
        exact = getattr(made, "_keep_in_fp32_modules", None) if made.__module__.startswith("diffusers") else None
        for parameter_name, parameter in module.named_parameters():  # buffers are as they would be beside real weights
            is_exact = any(part in parameter_name for part in exact or ())
            parameter.data = parameter.data.to(torch.float32 if is_exact else dtype)
        return module


@torch.no_grad()
def fill(module: nn.Module, seed: int) -> None:
    """Random weights in place, the same for the same seed and device: biases zero, gains one, matrices normal with
    1 / fan-in as variance, so that activations keep their scale through any number of layers.

    Whatever the constructors did is overwritten: some leave parameters uninitialised.
    """
    generators: dict[torch.device, torch.Generator] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if name == "bias" or name.endswith("_bias"):
                parameter.zero_()
            elif parameter.numel() == parameter.shape[0]:
                parameter.fill_(1)
            else:
                device = parameter.device
                generator = generators.setdefault(device, torch.Generator(device).manual_seed(seed))
                parameter.normal_(0, parameter[0].numel() ** -0.5, generator=generator)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice on standard error while loading."""
    diffusers, transformers = (
        importlib.import_module(f"{name}.utils.logging") for name in ("diffusers", "transformers")
    )
    before = [(library, library.get_verbosity()) for library in (diffusers, transformers)]
    had_bars = [library.is_progress_bar_enabled() for library in (diffusers, transformers)]
    for library, _ in before:
        library.set_verbosity_error()
        library.disable_progress_bar()
    try:
        yield
    finally:
        for (library, level), had_bar in zip(before, had_bars, strict=True):
            library.set_verbosity(level)
            if had_bar:
                library.enable_progress_bar()
