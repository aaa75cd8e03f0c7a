"""Dense attention by torch: the reference, where torch chooses the kernel, and its two fastest kernels by name."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ..registry import Target
from .cuda_targets import half_precision_objection

# Preferred kernels first; shapes that they do not take (a single key, say) fall to the next.
CUDNN_FIRST = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)
FLASH_FIRST = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)


def without_plans() -> AbstractContextManager[None]:
    """Inside, torch chooses among kernels that take any length at once. cuDNN, which it prefers on some devices, would
    make the host build a plan for each length not met before."""
    return sdpa_kernel(list(FLASH_FIRST), set_priority=True)


class TorchDenseAttention:
    """See `DenseAttention`. Biases come in as many shapes as there are lengths: see `without_plans`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def run(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None and q_BLHD.is_cuda:
            return _run(FLASH_FIRST, q_BLHD, k_BMHD, v_BMHD, bias)
        return _attend(q_BLHD, k_BMHD, v_BMHD, bias)


class CudnnDenseAttention:
    """See `DenseAttention`. cuDNN builds a plan for every new shape when it first meets it."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        if "bias" in target.needs:
            return "biases are left to torch's choice of kernel"
        return half_precision_objection(target, max_head_dim=128)

    @staticmethod
    def run(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None = None) -> Tensor:
        return _run(CUDNN_FIRST, q_BLHD, k_BMHD, v_BMHD, bias)


class FlashDenseAttention:
    """See `DenseAttention`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        if "bias" in target.needs:
            return "flash attention takes no bias"
        return half_precision_objection(target, max_head_dim=256)

    @staticmethod
    def run(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None = None) -> Tensor:
        return _run(FLASH_FIRST, q_BLHD, k_BMHD, v_BMHD, bias)


def _run(kernels: Sequence[SDPBackend], q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None) -> Tensor:
    with sdpa_kernel(list(kernels), set_priority=True):
        return _attend(q_BLHD, k_BMHD, v_BMHD, bias)


def _attend(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None) -> Tensor:
    mixed_BHLD = scaled_dot_product_attention(
        q_BLHD.transpose(1, 2), k_BMHD.transpose(1, 2), v_BMHD.transpose(1, 2), attn_mask=bias
    )
    return mixed_BHLD.transpose(1, 2)
