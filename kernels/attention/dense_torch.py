"""Torch reference of dense attention: torch chooses the kernel."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..registry import Target


class TorchDenseAttention:
    """See `DenseAttention`."""

    @classmethod
    def why_not(cls, target: Target) -> str | None:
        return None

    @staticmethod
    def run(q_BLHD: Tensor, k_BMHD: Tensor, v_BMHD: Tensor, bias: Tensor | None = None) -> Tensor:
        mixed_BHLD = scaled_dot_product_attention(
            q_BLHD.transpose(1, 2), k_BMHD.transpose(1, 2), v_BMHD.transpose(1, 2), attn_mask=bias
        )
        return mixed_BHLD.transpose(1, 2)
