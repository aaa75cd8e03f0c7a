"""The inverse frequencies of rotary embeddings, as configs of transformers describe them."""

from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Those whose frequencies do not change with the length of a sequence.
FIXED_TYPES = ("default", "linear", "llama3", "yarn")


def rope_type(config: Any) -> str:
    """The kind of rotary embedding of a transformers config."""
    return str(_parameters(config).get("rope_type", "default"))


def inverse_frequencies(config: Any, head_dim: int) -> tuple[tuple[float, ...], float]:
    """[head_dim / 2] frequencies, and the factor of cosines and sines.

    Raises:
        ValueError: the frequencies depend on the length of a sequence.
    """
    kind = rope_type(config)
    if kind not in FIXED_TYPES:
        raise ValueError(f"Rotary embedding of type '{kind}' changes with the length of a sequence.")
    if kind != "default":
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
        return tuple(frequencies.tolist()), float(scale)
    theta = float(_parameters(config).get("rope_theta", 10000.0))
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return tuple((1.0 / theta**exponents).tolist()), 1.0


def _parameters(config: Any) -> dict[str, Any]:
    return getattr(config, "rope_parameters", None) or {}
