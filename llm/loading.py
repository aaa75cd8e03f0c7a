"""Loads a language model from a folder or a config: our own decoder if it can run it, else the generic path.

Weights are read from safetensors and converted to one dtype. The hub has made sure that the files are whole.
"""

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING, AutoModel, AutoModelForCausalLM

from ..core.config import LoadFormat
from ..core.errors import CorruptWeights, UnsupportedModel
from ..core.hub import check_weights, context_len, forget_padding, one_line, read_config
from ..core.hub.source import inspect
from ..kernels.registry import Target
from .models import MODELS
from .models.base import LanguageModel
from .models.decoder import Decoder, DecoderConfig, DecoderKernels
from .models.tensors import DummyTensors, FileTensors, Tensors
from .models.transformers_decoder import ATTENTION, TransformersDecoder, register

log = logging.getLogger(__name__)


def load_model(
    source: Path | Any,
    *,
    dtype: torch.dtype,
    device: torch.device,
    load_format: LoadFormat = "auto",
    backends: Mapping[str, str] | None = None,
    has_head: bool = True,
) -> LanguageModel:
    """The model of a folder; of a config of transformers (with random weights) if that is given instead.

    Args:
        load_format: "dummy" makes random weights and reads none.
        backends: choices by operation name that override "auto"; `{"model": "transformers"}` forces the generic path.
        has_head: False loads what encoding needs only.

    Raises:
        CorruptWeights: weights are missing, broken or not what the config says.
        UnsupportedModel: nothing here runs it; the message says what is supported.
    """
    config = _config_of(source)
    length = context_len(source) if isinstance(source, Path) else None
    folder = source if isinstance(source, Path) and load_format == "auto" else None
    model = _load(config, folder, dtype, device, backends or {}, has_head)
    if length is not None:
        model.shape = replace(model.shape, max_len=length)  # as the edge reads it
    return model


def _load(
    config: Any,
    folder: Path | None,
    dtype: torch.dtype,
    device: torch.device,
    choices: Mapping[str, str],
    has_head: bool,
) -> LanguageModel:
    """With the weights of the folder; with random ones where there is none."""
    reason = "asked for" if choices.get("model") == "transformers" else _why_not_own(config)
    log.info("model: %s -> %s", config.model_type, f"transformers ({reason})" if reason else "own decoder")
    if reason is None:
        decoder = _own_shape(config)
        weights = _open_weights(folder, dtype, device)
        kernels = DecoderKernels.resolve(Target.of(device, dtype), choices)
        return Decoder(decoder, weights, kernels, dtype=dtype, has_head=has_head)
    return _load_generic(config, folder, dtype, device, has_head)


def _config_of(source: Path | Any) -> Any:
    if isinstance(source, Path):
        return read_config(source, supported())
    forget_padding(source)
    return source


def supported() -> str:
    """What can be run, for error messages."""
    return (
        f"Supported: {', '.join(MODELS)}, and every other causal decoder of transformers {transformers.__version__} "
        "whose layers all attend through its AttentionInterface."
    )


def auto_class(config: Any, *, has_head: bool) -> Any:
    """What makes a model of the config, with a language head or without.

    Raises:
        UnsupportedModel: nothing does: most such models see pictures, or translate.
    """
    known, auto = (MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM) if has_head else (MODEL_MAPPING, AutoModel)
    if type(config) not in known:
        raise UnsupportedModel(f"'{config.model_type}' is no causal decoder. {supported()}")
    return auto


def _own_config(config: Any) -> Callable[[Any], DecoderConfig]:
    module, _, function = MODELS[config.model_type].partition(":")
    build: Callable[[Any], DecoderConfig] = getattr(importlib.import_module(module), function)
    return build


def _own_shape(config: Any) -> DecoderConfig:
    try:
        return _own_config(config)(config)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        said = f"{type(error).__name__}: {one_line(error)}"
        raise UnsupportedModel(f"The config of '{config.model_type}' cannot be read. {said}") from error


def _why_not_own(config: Any) -> str | None:
    if config.model_type not in MODELS:
        return f"no own decoder for '{config.model_type}'"
    if getattr(config, "quantization_config", None):
        return "quantised weights"
    reason: str | None = importlib.import_module(MODELS[config.model_type].partition(":")[0]).why_not(config)
    return reason


def _open_weights(folder: Path | None, dtype: torch.dtype, device: torch.device) -> Tensors:
    if folder is None:
        return DummyTensors(dtype=dtype, device=device)
    files = check_weights(inspect(folder, folder.name, "folder")).files
    return FileTensors(files, dtype=dtype, device=device)


def _load_generic(
    config: Any, folder: Path | None, dtype: torch.dtype, device: torch.device, has_head: bool
) -> LanguageModel:
    register()
    auto = auto_class(config, has_head=has_head)
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": ATTENTION}
    try:
        if folder is None:
            model = auto.from_config(config, **options)
        else:
            check_weights(inspect(folder, folder.name, "folder"))
            options |= {"config": config, "local_files_only": True, "output_loading_info": True}
            model, found = auto.from_pretrained(folder, **options)
            if found["missing_keys"]:
                names = sorted(found["missing_keys"])
                raise CorruptWeights(f"{folder}: {len(names)} tensors are in no weight file, {names[0]} the first.")
    except (SafetensorError, RuntimeError) as error:
        raise CorruptWeights(f"{folder} cannot be loaded: {one_line(error)}") from error
    except (ValueError, ImportError) as error:  # the latter where the library needs a package that is not there
        raise UnsupportedModel(f"'{config.model_type}': {one_line(error)} {supported()}") from error
    except KeyError as error:
        if error.args != (ATTENTION,):
            raise
        reason = "its attention in that library is none of the AttentionInterface's."
        raise UnsupportedModel(f"'{config.model_type}': {reason} {supported()}") from error
    return TransformersDecoder(model.to(device), has_head=has_head)


def has_language_head(source: Path | Any) -> bool:
    """Whether the model can generate text: bare encoders say so in their architecture's name.

    Raises:
        UnsupportedModel: the config cannot be read.
    """
    config = _config_of(source)
    architecture = next(iter(getattr(config, "architectures", None) or ()), "")
    return not architecture.endswith("Model") or architecture.endswith("LMHeadModel")
