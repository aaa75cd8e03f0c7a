"""All operations with a registry, for listings and for the tests that compare every backend with its reference."""

from typing import Any

from .activation import GATED_ACTIVATION
from .attention import DENSE_ATTENTION, PAGED_ATTENTION, RAGGED_ATTENTION
from .gated_residual import GATED_RESIDUAL
from .head_rope import HEAD_ROPE
from .kv_store import KV_STORE
from .linear import LINEAR
from .modulated_norm import MODULATED_NORM
from .registry import Operation
from .rms_norm import RMS_NORM
from .rope import ROPE
from .sampling import SAMPLER
from .solver_step import SOLVER_STEP

OPERATIONS: tuple[Operation[Any], ...] = (
    LINEAR,
    RMS_NORM,
    ROPE,
    GATED_ACTIVATION,
    KV_STORE,
    MODULATED_NORM,
    GATED_RESIDUAL,
    HEAD_ROPE,
    PAGED_ATTENTION,
    RAGGED_ATTENTION,
    DENSE_ATTENTION,
    SAMPLER,
    SOLVER_STEP,
)
