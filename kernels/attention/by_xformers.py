"""Ragged and dense attention by xformers: its flash operator, or cutlass where flash cannot.

Measured on an H200, 4608 tokens, 24 heads of 128, bfloat16: flash 326, cutlass 164 TFLOP/s.
Shape suffixes: as in the operations; G = H / K.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..captured import keep
from ..registry import Target
from . import ScoreOptions
from .cuda_targets import half_precision_objection
from .recent import Recent

MAX_MASKS = 64


def objection(target: Target) -> str | None:
    """Why xformers cannot serve attention of the target, or None."""
    common = half_precision_objection(target, max_head_dim=256)
    if common is not None:
        return common
    missing = sorted(target.needs)
    return f"it is used without {', '.join(missing)}" if missing else _import_objection()


@cache
def _import_objection() -> str | None:
    try:
        import xformers
        import xformers.ops
    except ImportError as error:
        return f"xformers cannot be imported ({error})"
    if not xformers._has_cpp_library:
        return "xformers cannot load its extension (its CUDA runtime has to be on LD_LIBRARY_PATH)"
    return None


class XformersRaggedAttention:
    """See `RaggedAttention`."""

    def __init__(self) -> None:
        self._masks: Recent[tuple[Any, ...], Any] = Recent(MAX_MASKS)

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return objection(target)

    def run(
        self,
        q_THD: Tensor,
        k_TKD: Tensor,
        v_TKD: Tensor,
        lens: Sequence[int],
        options: ScoreOptions,
        *,
        is_causal: bool = True,
        sinks_H: Tensor | None = None,
    ) -> Tensor:
        if sinks_H is not None or options.softcap is not None or options.window is not None:
            raise ValueError("xformers is used without sinks, softcap and window: name these needs to the registry.")
        from xformers.ops import memory_efficient_attention

        mask = self._mask(tuple(lens), is_causal, q_THD.device)
        keep(mask)
        num_kv_heads = k_TKD.shape[1]
        q_1TKGD = q_THD.unflatten(1, (num_kv_heads, -1))[None]
        if q_1TKGD.shape[3] == 1:
            out: Tensor = memory_efficient_attention(
                q_THD[None], k_TKD[None], v_TKD[None], attn_bias=mask, scale=options.scale
            )
        else:
            k, v = (x[None, :, :, None].expand(-1, -1, -1, q_1TKGD.shape[3], -1) for x in (k_TKD, v_TKD))
            out = memory_efficient_attention(q_1TKGD, k, v, attn_bias=mask, scale=options.scale)
        return out.reshape(q_THD.shape)

    def _mask(self, lens: tuple[int, ...], is_causal: bool, device: torch.device) -> Any:
        mask = self._masks.get((lens, is_causal, device))
        if mask is None:
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "A mask cannot be made while a graph is captured: make the same call once before the capture."
                )
            from xformers.ops.fmha.attn_bias import BlockDiagonalMask

            mask = BlockDiagonalMask.from_seqlens(lens, device=device)
            mask = mask.make_causal() if is_causal else mask
            self._masks.put((lens, is_causal, device), mask)
        return mask


class XformersDenseAttention:
    """See `DenseAttention`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return objection(target)

    @staticmethod
    def run(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            raise ValueError("xformers is used without bias: name this need to the registry.")
        from xformers.ops import memory_efficient_attention

        out_BLHD: Tensor = memory_efficient_attention(q_BLHD, k_BMHD, v_BMHD)
        return out_BLHD
