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
    """Against float64, for weights as a bfloat16 checkpoint has them: no further off than twice float32's own error."""
    weight = (torch.randn(200, 300) * 0.05).bfloat16().float()
    x = torch.randn(40, 300)
    linear = FbgemmLinear(weight)
    exact = x.double() @ weight.double().T
    assert linear.is_half and not FbgemmLinear(torch.randn(4, 4)).is_half
    assert (linear(x) - exact).abs().max() <= 2 * (x @ weight.T - exact).abs().max()
