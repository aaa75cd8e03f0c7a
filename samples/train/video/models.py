"""The shapes of the video model: what ships, and a toy of the same structure for smoke tests on a CPU.

The decoder is narrow on purpose: a clip of 96 x 96 x 17 must decode in about two seconds on one CPU thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

LATENT_CHANNELS = 16
TEXT_SLOTS = 39
"""Most tokens of a caption in training, the end mark included."""


@dataclass(frozen=True)
class Shape:
    """Sizes that differ between the shipped model and the toy."""

    name: str
    vae_width: int
    vae_multipliers: tuple[int, ...]
    heads: int
    layers: int
    ffn: int
    text_width: int
    text_ffn: int
    text_layers: int

    def vae(self, mean: list[float] | None = None, std: list[float] | None = None) -> AutoencoderKLWan:
        """An untrained autoencoder; `mean` and `std` normalise its latents per channel."""
        return AutoencoderKLWan(
            base_dim=self.vae_width,
            decoder_base_dim=self.vae_width,
            z_dim=LATENT_CHANNELS,
            dim_mult=list(self.vae_multipliers),
            num_res_blocks=1,
            temperal_downsample=[False, True, True],
            latents_mean=mean or [0.0] * LATENT_CHANNELS,
            latents_std=std or [1.0] * LATENT_CHANNELS,
        )

    def transformer(self) -> WanTransformer3DModel:
        """A denoiser whose blocks begin near the identity and whose velocity begins at zero."""
        model = WanTransformer3DModel(
            num_attention_heads=self.heads,
            attention_head_dim=32,
            in_channels=LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            text_dim=self.text_width,
            freq_dim=256,
            ffn_dim=self.ffn,
            num_layers=self.layers,
            rope_max_seq_len=256,
        )
        with torch.no_grad():
            model.proj_out.weight.zero_()
            model.proj_out.bias.zero_()
            model.condition_embedder.time_proj.weight.mul_(0.1)
            for block in model.blocks:
                block.scale_shift_table[:, 2] += 0.3
                block.scale_shift_table[:, 5] += 0.3
        return model

    def text_encoder(self, vocabulary: int) -> UMT5EncoderModel:
        return UMT5EncoderModel(
            UMT5Config(
                vocab_size=vocabulary,
                d_model=self.text_width,
                d_kv=32,
                d_ff=self.text_ffn,
                num_layers=self.text_layers,
                num_decoder_layers=self.text_layers,
                num_heads=self.text_width // 32,
                dropout_rate=0.0,
                feed_forward_proj="gated-gelu",
                pad_token_id=0,
                eos_token_id=1,
                decoder_start_token_id=0,
            )
        )


SHAPES = {
    "shipped": Shape(
        "shipped", 16, (1, 2, 4, 4), heads=8, layers=8, ffn=768, text_width=192, text_ffn=256, text_layers=3
    ),
    "toy": Shape("toy", 8, (1, 1, 2, 2), heads=2, layers=2, ffn=64, text_width=64, text_ffn=64, text_layers=1),
}


def solver() -> UniPCMultistepScheduler:
    """The scheduler that ships in the pipeline folder."""
    return UniPCMultistepScheduler(
        num_train_timesteps=1000, prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    )
