"""Half-precision weights are taken only where they lose nothing."""

import pytest
import torch

from hemiola.kernels.linear import LINEAR
from hemiola.kernels.linear.fbgemm import FbgemmLinear, keeps_its_values
from hemiola.kernels.registry import Target


@pytest.mark.parametrize(
    ("weight", "keeps"),
    [
        (torch.randn(64, 64).bfloat16().float(), True),
        (torch.tensor([[2.0**-17 * 1.9921875, 1e-9, -60000.0]]).bfloat16().float(), True),
        (torch.randn(64, 64), False),
        (torch.tensor([[1e5]]), False),
        (torch.tensor([[float("nan")]]), False),
    ],
)
def test_which_weights_keep_their_values(weight: torch.Tensor, keeps: bool) -> None:
    assert keeps_its_values(weight) is keeps


@pytest.mark.skipif(
    LINEAR.why_not("fbgemm", Target("cpu", torch.float32)) is not None, reason="FBGEMM cannot run on this machine"
)
def test_half_weights_are_as_exact_as_float32_ones() -> None:
    """Weights as a bfloat16 checkpoint has them, against float64: within the bound of any sum of n float32 products,
    n u |x| |w| with u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1)."""
    weight = (torch.randn(200, 300) * 0.05).bfloat16().float()
    x = torch.randn(40, 300)
    linear = FbgemmLinear(weight)
    exact = x.double() @ weight.double().T
    assert linear.is_half and not FbgemmLinear(torch.randn(4, 4)).is_half
    bound = x.shape[1] * 2.0**-24 * (x.double().abs() @ weight.double().abs().T)
    assert ((linear(x) - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_on_cuda_are_those_of_torch(dtype: torch.dtype) -> None:
    resolved = LINEAR.resolve(Target("cuda", dtype, (9, 0)))
    assert resolved.name == "torch"
    assert "not fbgemm: it is for float32 activations on CPUs; not onednn: it is for CPUs" in resolved.reason
