"""The shapes of the image model's parts, as diffusers configurations.

`shipped` is what the project ships (autoencoder 2.3 M parameters, denoiser 10.8 M); `toy` lets every script run in
seconds on a CPU. Latents are 8 times smaller than the picture, with 16 channels; the denoiser sees 2 x 2 patches.
"""

from dataclasses import dataclass

from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImageTransformer2DModel

LATENT_CHANNELS = 16
LATENT_FACTOR = 8
PATCH = 2
TOKEN_PIXELS = LATENT_FACTOR * PATCH
"""Heights and widths must be multiples of this."""

NATIVE_SIZE = 128
STEPS, GUIDANCE, SHIFT = 16, 3.0, 2.0
"""How the model is evaluated; guidance as ZImagePipeline counts it: conditional + 3 (conditional - unconditional)."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the two trained parts. head_dim = dim / num_heads = sum(axes_dims)."""

    vae_channels: tuple[int, ...]
    vae_groups: int
    dim: int
    num_layers: int
    num_heads: int
    axes_dims: tuple[int, int, int]

    def vae(self) -> AutoencoderKL:
        """A new autoencoder with random weights; scaling_factor and shift_factor are measured after training."""
        levels = len(self.vae_channels)
        return AutoencoderKL(
            block_out_channels=self.vae_channels,
            down_block_types=("DownEncoderBlock2D",) * levels,
            up_block_types=("UpDecoderBlock2D",) * levels,
            layers_per_block=1,
            latent_channels=LATENT_CHANNELS,
            norm_num_groups=self.vae_groups,
            sample_size=NATIVE_SIZE,
            mid_block_add_attention=False,
            use_quant_conv=False,
            use_post_quant_conv=False,
            force_upcast=False,
        )

    def transformer(self, text_width: int) -> ZImageTransformer2DModel:
        """A new denoiser for text features of `text_width` channels."""
        return ZImageTransformer2DModel(
            all_patch_size=(PATCH,),
            all_f_patch_size=(1,),
            in_channels=LATENT_CHANNELS,
            dim=self.dim,
            n_layers=self.num_layers,
            n_refiner_layers=1,
            n_heads=self.num_heads,
            n_kv_heads=self.num_heads,
            cap_feat_dim=text_width,
            axes_dims=list(self.axes_dims),
            axes_lens=[1024, 64, 64],  # the first must exceed the padded caption, which may have 512 tokens
            rope_theta=256.0,
            t_scale=1000.0,
            qk_norm=True,
        )


SHAPES: dict[str, Shape] = {
    "shipped": Shape((32, 64, 96, 96), 16, 288, 6, 9, (8, 12, 12)),
    "toy": Shape((16, 16, 16, 16), 8, 64, 1, 2, (8, 12, 12)),
}


def scheduler() -> FlowMatchEulerDiscreteScheduler:
    """The solver that ships with the model."""
    return FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=SHIFT, use_dynamic_shifting=False)
