"""Finding models and looking at their files before anything is loaded: no torch, no scheduling.

source = resolve("Qwen/Qwen3-8B")      where it is, and what kind
summary = check_weights(source)        whole files or CorruptWeights; bytes for "cannot fit"
"""

from .dummies import shape_names
from .find import DEMO_MODELS, encoder_source, known_models, resolve, resolve_all, tokenizer_folder
from .language import context_len, forget_padding, read_config, text_part
from .quoting import one_line
from .source import Kind, ModelSource, SharedEncoder
from .weights import WeightSummary, check_weights, declared_weights, made_up_weights, read_header

__all__ = [
    "DEMO_MODELS",
    "Kind",
    "ModelSource",
    "SharedEncoder",
    "WeightSummary",
    "check_weights",
    "context_len",
    "declared_weights",
    "encoder_source",
    "forget_padding",
    "known_models",
    "made_up_weights",
    "one_line",
    "read_config",
    "read_header",
    "resolve",
    "resolve_all",
    "shape_names",
    "text_part",
    "tokenizer_folder",
]
