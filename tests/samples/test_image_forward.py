"""The static forward equals diffusers', with and without padded picture tokens, with short and long captions."""

import pytest
import torch

from samples.train.image.forward import StaticDenoiser
from samples.train.image.models import LATENT_CHANNELS, SHAPES


@pytest.mark.parametrize(("height", "width", "slots"), [(16, 16, 32), (12, 12, 32), (16, 24, 64)])
def test_equals_diffusers(height: int, width: int, slots: int) -> None:
    torch.manual_seed(0)
    model = SHAPES["toy"].transformer(40).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.1 if parameter.ndim > 1 else 0.5))
    static = StaticDenoiser(model, height, width, slots)
    x = torch.randn(3, LATENT_CHANNELS, height, width)
    t = torch.tensor([0.1, 0.5, 0.9])
    text, lengths = torch.randn(3, slots, 40), torch.tensor([slots - 31, slots - 9, slots])
    with torch.no_grad():
        got = static(x, t, text, lengths)
        captions = [row[:length] for row, length in zip(text, lengths.tolist(), strict=True)]
        expected = torch.stack(model(list(x[:, :, None]), t, captions).sample)[:, :, 0]
    assert expected.std() > 0.1
    assert torch.allclose(got, expected, atol=2e-4 * expected.abs().max().item())
