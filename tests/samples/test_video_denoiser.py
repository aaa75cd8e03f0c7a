"""The training forward of the video denoiser and its text encoder equals diffusers and transformers."""

from __future__ import annotations

import pytest
import torch
from diffusers import WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

from samples.train.video.denoiser import TextEncoder, denoise, rope_tables, text_keys

SLOTS = 12


def tiny_models() -> tuple[UMT5EncoderModel, WanTransformer3DModel]:
    torch.manual_seed(0)
    config = UMT5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, dropout_rate=0.0)
    encoder = UMT5EncoderModel(config).eval()
    transformer = WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16,
        ffn_dim=40, num_layers=2, rope_max_seq_len=32,
    ).eval()  # fmt: skip
    for parameter in [*encoder.parameters(), *transformer.parameters()]:
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder, transformer


def reference(
    encoder: UMT5EncoderModel,
    transformer: WanTransformer3DModel,
    ids: torch.Tensor,
    length: torch.Tensor,
    padded: int,
    x: torch.Tensor,
    t: torch.Tensor,
) -> torch.Tensor:
    """What WanPipeline does: encode with a mask, cut, pad with zeros to `max_sequence_length`, no mask afterwards."""
    ids = torch.nn.functional.pad(ids, (0, padded - ids.shape[1]))
    mask = (torch.arange(padded) < length[:, None]).long()
    hidden = encoder(ids * mask, mask).last_hidden_state * mask[..., None]
    velocity: torch.Tensor = transformer(x, t, hidden, return_dict=False)[0]
    return velocity


@pytest.mark.parametrize("padded", [16, 64, 512])
def test_the_training_forward_equals_the_pipelines_for_every_text_padding(padded: int) -> None:
    encoder, transformer = tiny_models()
    ids, length = torch.randint(1, 40, (2, SLOTS)), torch.tensor([3, SLOTS])
    x, t = torch.randn(2, 4, 3, 4, 6), torch.tensor([17.0, 950.0])
    with torch.no_grad():
        expected = reference(encoder, transformer, ids, length, padded, x, t)
        hidden = TextEncoder.of(encoder, SLOTS)(dict(encoder.named_parameters()), ids, length)
        text, bias = text_keys(hidden, length, torch.tensor([padded, padded]))
        got = denoise(
            dict(transformer.named_parameters()), transformer, x, t, text, bias, rope_tables(transformer, 3, 4, 6)
        )
    assert expected.std() > 0.1
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-5)


def test_another_text_padding_is_another_function() -> None:
    """Guards the reason for the padding trick: without it the model would depend on max_sequence_length."""
    encoder, transformer = tiny_models()
    ids, length = torch.randint(1, 40, (1, SLOTS)), torch.tensor([5])
    x, t = torch.randn(1, 4, 1, 4, 4), torch.tensor([500.0])
    with torch.no_grad():
        short, long = (reference(encoder, transformer, ids, length, padded, x, t) for padded in (16, 512))
    assert (short - long).abs().max() > 1e-3


def test_gradients_reach_every_parameter() -> None:
    encoder, transformer = tiny_models()
    ids, length = torch.randint(1, 40, (2, SLOTS)), torch.tensor([3, 9])
    hidden = TextEncoder.of(encoder, SLOTS)(dict(encoder.named_parameters()), ids, length)
    text, bias = text_keys(hidden, length, torch.tensor([64, 512]))
    x, t = torch.randn(2, 4, 1, 4, 4), torch.tensor([100.0, 900.0])
    denoise(
        dict(transformer.named_parameters()), transformer, x, t, text, bias, rope_tables(transformer, 1, 4, 4)
    ).square().sum().backward()
    named = [*encoder.named_parameters(), *transformer.named_parameters()]
    assert [name for name, p in named if p.grad is None or not p.grad.any()] == []
