"""Ragged attention by FlashInfer: fa3 on Hopper, fa2 elsewhere.

A plan depends on the lengths, and costs more than a small launch; the last ones are kept, each with buffers of its own
which are never written again, so that graphs may hold on to them.
Measured on an H200, segments of 1536, 2816 and 4608 tokens, 24 heads of 128, bfloat16, not causal: fa3 693 TFLOP/s,
fa2 374.
Shape suffixes: T tokens, H query heads, K key heads, D head size.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ..captured import keep
from ..registry import Target
from . import ScoreOptions
from .flashinfer_wrapper import (
    Workspace,
    Wrapper,
    chunk_kernel,
    float_bytes,
    objection,
    parameters,
    refuse_capture,
    sized,
)
from .recent import Recent

MAX_PLANS = 32


class FlashInferRaggedAttention:
    """See `RaggedAttention`."""

    def __init__(self) -> None:
        self._plans: Recent[Hashable, Wrapper] = Recent(MAX_PLANS)
        self._workspaces: dict[torch.device, Workspace] = {}

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
        if sinks_H is not None:
            raise ValueError("FlashInfer has no attention sinks: resolve the backend for a target that needs 'sinks'.")
        if options.window is not None and not is_causal:
            raise ValueError("A window needs causal attention.")
        key = (tuple(lens), q_THD.shape[1:], k_TKD.shape[1], q_THD.dtype, options, is_causal, q_THD.device)
        wrapper = self._plans.get(key)
        if wrapper is None:
            wrapper = self._planned(q_THD, k_TKD.shape[1], lens, options, is_causal)
            dropped = self._plans.put(key, wrapper)
            if dropped is not None:
                dropped.wait()
        keep(wrapper)
        out_THD: Tensor = wrapper.run(q_THD, k_TKD, v_TKD)
        return out_THD

    @torch.inference_mode(False)
    def _planned(
        self, q_THD: Tensor, num_kv_heads: int, lens: Sequence[int], options: ScoreOptions, is_causal: bool
    ) -> Wrapper:
        from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

        refuse_capture()
        num_heads, head_dim = q_THD.shape[1:]
        device, kernel = q_THD.device, chunk_kernel(q_THD.device)
        workspace = self._workspaces.setdefault(device, Workspace(device))
        # At most 28 bytes for each head and tile of at least 16 tokens, and 8 per token: PrefillPlan, PrefillSM90Plan.
        int_bytes = 32 * num_heads * (sum(lens) // 16 + len(lens)) + 8 * sum(lens) + 65536
        floats = workspace.of(float_bytes(num_heads, num_kv_heads, head_dim, device))
        wrapper = Wrapper(sized(BatchPrefillWithRaggedKVCacheWrapper(floats, "NHD", backend=kernel), int_bytes))
        starts = torch.tensor([0, *lens], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        wrapper.plan(
            starts,
            starts,
            num_heads,
            num_kv_heads,
            head_dim,
            causal=is_causal,
            q_data_type=q_THD.dtype,
            **parameters(options),
        )
        return wrapper
