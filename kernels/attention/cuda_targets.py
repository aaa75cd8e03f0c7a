"""What kernels in half precision on CUDA devices have in common."""

import torch

from ..registry import Target


def half_precision_objection(target: Target, *, max_head_dim: int) -> str | None:
    """Why a kernel for float16 and bfloat16 on sm80 and newer cannot serve the target, or None."""
    if target.device_type != "cuda":
        return "it is for CUDA devices"
    if target.capability is not None and target.capability < (8, 0):
        return "it needs sm80 or newer"
    if target.dtype not in (torch.float16, torch.bfloat16):
        return "it computes in float16 and bfloat16 only"
    if target.head_dim is not None and (target.head_dim > max_head_dim or target.head_dim % 8):
        return f"its heads are of multiples of 8 up to {max_head_dim}"
    return None
