"""What FlashInfer's backends share: where it runs, its kernels' parameters, and wrappers that may be planned again.

FlashInfer compiles a kernel the first time that it meets a kind of it (20 to 90 seconds): see `kernels/warm.py`.
Checked against FlashInfer 0.6.7.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import torch

from ..registry import Target
from . import ScoreOptions
from .cuda_targets import half_precision_objection

HEAD_DIMS = (64, 128, 256)

# What FlashInfer's documentation recommends; plans that split long contexts may need more, see `float_bytes`.
FLOAT_BYTES = 128 << 20


def objection(target: Target) -> str | None:
    """Why FlashInfer cannot serve attention of the target, or None."""
    common = half_precision_objection(target, max_head_dim=max(HEAD_DIMS))
    if common is not None:
        return common
    if target.head_dim is not None and target.head_dim not in HEAD_DIMS:
        return f"its heads are of {', '.join(map(str, HEAD_DIMS))}"
    if "sinks" in target.needs:
        return "it has no attention sinks"
    if "bias" in target.needs:
        return "it takes no bias"
    return _import_objection()


@cache
def _import_objection() -> str | None:
    try:
        import flashinfer  # noqa: F401
        from flashinfer.jit.cpp_ext import get_cuda_path
    except ImportError as error:
        return f"flashinfer cannot be imported ({error})"
    if find_spec("flashinfer_jit_cache") is None:
        try:
            get_cuda_path()
        except RuntimeError as error:
            return f"flashinfer has no compiler ({error})"
    return None


def chunk_kernel(device: torch.device) -> Literal["fa2", "fa3"]:
    """Which of FlashInfer's kernels serves more than one query per row: fa3 needs Hopper, and is not for later ones."""
    return "fa3" if torch.cuda.get_device_capability(device) == (9, 0) else "fa2"


def parameters(options: ScoreOptions) -> dict[str, Any]:
    """A plan's keywords. FlashInfer counts a window without the query's own key."""
    return {
        "sm_scale": options.scale,
        "logits_soft_cap": options.softcap or 0.0,
        "window_left": -1 if options.window is None else options.window - 1,
    }


def float_bytes(num_heads: int, num_kv_heads: int, head_dim: int, device: torch.device, num_rows: int = 0) -> int:
    """The most that fa2 takes of a float workspace: partial outputs and sums, float32, of all blocks in flight.

    Args:
        num_rows: of a fixed plan of decodes; 0 for plans whose size is not fixed.

    Source: PrefillPlan in FlashInfer's scheduler.cuh.
    """
    group = num_heads // num_kv_heads
    tile = 128 if not num_rows or group > 64 else 64 if group > 16 else 16
    num_blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count // num_kv_heads
    num_tiles = -(-num_rows * group // tile) + num_rows - 1 if num_rows else 0
    return num_heads * max(num_blocks, num_tiles) * tile * (head_dim + 1) * 4 + 1024


def sized(wrapper: Any, int_bytes: int) -> Any:
    """The wrapper with such buffers for its plan, on the device and on the host, instead of 8 MiB each."""
    buffer = torch.empty(-(-int_bytes // 4096) * 4096, dtype=torch.uint8, device=wrapper.device)
    wrapper.reset_workspace_buffer(wrapper._float_workspace_buffer, buffer)
    return wrapper


def refuse_capture() -> None:
    """
    Raises:
        RuntimeError: a graph is being captured on the current stream.
    """
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "Attention cannot be planned while a graph is captured: make the same call once before the capture."
        )


class Workspace:
    """Device memory that all wrappers of one instance share; on one stream no two of them run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer: torch.Tensor | None = None

    def of(self, nbytes: int) -> torch.Tensor:
        """uint8, at least so many. Where it grows, wrappers made before hold on to the one they were given."""
        if self._buffer is None or self._buffer.numel() < nbytes:
            self._buffer = torch.empty(max(nbytes, FLOAT_BYTES), dtype=torch.uint8, device=self._device)
        return self._buffer


class Wrapper:
    """A FlashInfer wrapper that may be planned again.

    `plan` fills a pinned buffer, whose copy to the device is only enqueued: the buffer must not be written again before
    that copy is over. With two steps in flight it always is, so that waiting for it costs nothing.
    """

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._copied = torch.cuda.Event()
        self.run = wrapper.run

    def plan(self, *args: Any, **keywords: Any) -> None:
        refuse_capture()
        self.wait()
        self._wrapper.plan(*args, **keywords)
        self._copied.record()

    def wait(self) -> None:
        """Until the pinned buffer may be written again, by this wrapper or by whoever gets its memory."""
        self._copied.synchronize()
