"""What steps take of a device's memory besides weights and leases, by arithmetic over the configurations. No torch.

Tests compare each figure with what is counted while a stage runs (`tests/diffusion/test_footprint.py`); what libraries
take inside an operation is added to it. Everywhere `itemsize` is that of the weights, and pixels are width times
height, all of a batch together.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

FFN_TOKENS = 16384
"""So many tokens of a clip go through a feed-forward network at once, where memory counts."""
_FLOAT_BYTES = 4
_FRAMES_OF_CHUNK = 4  # that a latent frame decodes to
_NORMAL_WIDTH = 128  # channels of the widest maps of full size: see `picture_decode_bytes`
STRIPE_PIXELS = 1 << 19
"""About so many positions of a large map are convolved at once, over all rows of a batch: enough to fill a device."""


class Footprint(NamedTuple):
    """Fields:
    activation_bytes: the most that any step takes, of the largest request.
    graph_bytes: scratch memory of the graphs of a request of the default size, on one share of the SMs.
    """

    activation_bytes: int
    graph_bytes: int


def clip_decode_bytes(vae: Mapping[str, Any], pixels: int, num_frames: int, itemsize: int = 2) -> int:
    """Of a clip's VAE (`vae_wan`): 5.1 maps of four frames, each of as many channels as full size has.

    A residual block holds its input, what came of it, a buffer of six frames, and a frame in float32: 4 maps. What a
    convolution copies into another layout, three frames read and one written, is one more. The ends hold all frames as
    floats and in `itemsize`. Before frames were taken one by one, it was 9 maps and 4 copied ones.
    """
    map_bytes = _FRAMES_OF_CHUNK * int(vae.get("base_dim", 96)) * pixels * itemsize
    block = map_bytes * 51 // 10
    return max(block, 3 * num_frames * pixels * (itemsize + _FLOAT_BYTES))


def clip_denoise_bytes(transformer: Mapping[str, Any], tokens: int, itemsize: int = 2) -> int:
    """Of one guidance branch of Wan: nine tensors of all tokens (queries, keys and values, each before and after its
    norm, what is attended, the result, and both branches' joined), or six and the feed-forward of some tokens."""
    width = int(transformer["num_attention_heads"]) * int(transformer["attention_head_dim"]) * itemsize
    hidden = 2 * min(tokens, FFN_TOKENS) * int(transformer["ffn_dim"]) * itemsize
    return max(9 * tokens * width, 6 * tokens * width + hidden)


def picture_decode_bytes(vae: Mapping[str, Any], pixels: int, itemsize: int = 2) -> int:
    """Of AutoencoderKL (`vae_2d`, `stripes`): in the first block of full size, an input of twice the channels, its
    normed copy, the output, and a stripe with what the convolution copies."""
    channels = list(vae.get("block_out_channels", (_NORMAL_WIDTH, 2 * _NORMAL_WIDTH)))
    narrow, wide = int(channels[0]), int(channels[min(1, len(channels) - 1)])
    per_pixel = (2 * wide + narrow) * itemsize
    per_stripe_pixel = (2 * wide + 2 * wide) * itemsize  # upsampling: as many channels are written as are read
    return per_pixel * pixels + per_stripe_pixel * min(pixels, STRIPE_PIXELS)


def picture_denoise_bytes(width: int, tokens: int, itemsize: int = 2) -> int:
    """Of a transformer of that width: twenty tensors of all tokens, among them a feed-forward of four times the width
    before and after its activation, and what is joined for its output."""
    return 20 * tokens * width * itemsize


def picture_footprint(
    vae: Mapping[str, Any], width: int, largest: tuple[int, int], usual: tuple[int, int], itemsize: int
) -> Footprint:
    """Of a transformer of that width and its VAE.

    Args:
        largest, usual: pixels of the largest request and of one of the default size, and their tokens.
    """
    denoise = picture_denoise_bytes(width, largest[1], itemsize)
    activations = max(denoise, picture_decode_bytes(vae, largest[0], itemsize))
    return Footprint(activations, picture_denoise_bytes(width, usual[1], itemsize))
