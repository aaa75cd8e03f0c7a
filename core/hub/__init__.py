"""Finding models and looking at their files before anything is loaded: no torch, no scheduling.

source = resolve("Qwen/Qwen3-8B")      where it is, and what kind
summary = check_weights(source)        whole files or CorruptWeights; bytes for "cannot fit"
"""

from .dummies import shape_names
from .find import DEMO_MODELS, encoder_source, known_models, resolve, resolve_all, tokenizer_folder
from .source import Kind, ModelSource, SharedEncoder
from .weights import WeightSummary, check_weights, declared_weights, made_up_weights, read_header

__all__ = [
    "DEMO_MODELS",
    "Kind",
    "ModelSource",
    "SharedEncoder",
    "WeightSummary",
    "check_weights",
    "declared_weights",
    "encoder_source",
    "known_models",
    "made_up_weights",
    "read_header",
    "resolve",
    "resolve_all",
    "shape_names",
    "tokenizer_folder",
]
