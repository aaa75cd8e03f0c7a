"""What memory is kept for steps, against what is counted while they run at real sizes, where nothing is computed."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL, AutoencoderKLWan
from torch import nn

from hemiola.core.hub import resolve
from hemiola.diffusion.edge import open_edge
from hemiola.diffusion.edge.footprint import (
    FFN_TOKENS,
    clip_decode_bytes,
    clip_denoise_bytes,
    picture_decode_bytes,
    picture_denoise_bytes,
)
from hemiola.diffusion.families import wan_blocks
from hemiola.diffusion.stage import Carry, Clean
from hemiola.diffusion.stripes import STRIPE_PIXELS
from hemiola.diffusion.vae_2d import Decode2d
from hemiola.diffusion.vae_wan import DecodeWan
from hemiola.tests.diffusion.driver import media_request, tiny_family
from hemiola.tests.diffusion.live_bytes import LiveBytes, live_bytes
from hemiola.tests.diffusion.rows import rows_for

MIB = 1 << 20


def made_of_shapes(vae: type[Any], model: str) -> tuple[Any, Mapping[str, Any]]:
    """A VAE without contents, and its configuration."""
    config = open_edge(resolve(model).path).files.config("vae")
    with torch.device("meta"):
        return vae.from_config(config).to(torch.bfloat16).eval().requires_grad_(False), config


def storages(carry: Carry) -> int:
    """Bytes that the carry keeps alive, which is more than its own where a tensor is a view."""
    return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in carry.tensors.values()}.values())


def decode_peaks(stage: Any, shape: tuple[int, ...], last: Callable[[int], int]) -> tuple[int, int, Carry]:
    """The most bytes alive in blocks besides what the carry keeps but for their input, and in the end besides it.

    Args:
        last: how many blocks to run, of so many.
    """
    with live_bytes() as live:
        latents = torch.empty(shape if len(shape) == 4 else (shape[0], 1, *shape[1:]), device="meta")
        carry = stage.open([Clean(latents)])
        blocks, peak = stage.blocks(shape), 0
        for block in blocks[: last(len(blocks))]:
            kept = storages(carry) - carry.tensors["x"].nbytes if "x" in carry.tensors else storages(carry)
            live.peak = live.now
            block.run(carry)
            peak = max(peak, live.peak - kept - latents.nbytes)
        kept, live.peak = storages(carry), live.now
        frames = stage.close(carry, [Clean(latents)])
        end = live.peak - kept - latents.nbytes
        del frames
    return peak, end, carry


@pytest.mark.parametrize(("width", "height", "num_frames"), [(832, 480, 81), (1280, 720, 81), (1280, 720, 161)])
def test_decoding_a_clip_takes_what_was_estimated(width: int, height: int, num_frames: int) -> None:
    vae, config = made_of_shapes(AutoencoderKLWan, "dummy:wan-1.3b")
    shape = (16, (num_frames - 1) // 4 + 1, height // 8, width // 8)
    peak, end, carry = decode_peaks(DecodeWan(vae), shape, lambda blocks: blocks // shape[1] * 3)
    frame = 96 * width * height * 2
    copied = 4 * frame  # by a convolution, into another layout: three frames read and one written
    estimate = clip_decode_bytes(config, width * height, num_frames)
    assert 0.9 * estimate < max(peak + copied, end) <= estimate
    declared = DecodeWan(vae).carried(shape)
    assert storages(carry) - sum(t.nbytes for t in carry.tensors.values()) == 0, "a view keeps more than itself"
    assert all(tensor.nbytes <= declared[name] for name, tensor in carry.tensors.items())


def test_sparing_memory_takes_less_than_half_of_stacking() -> None:
    vae, _ = made_of_shapes(AutoencoderKLWan, "dummy:wan-1.3b")
    shape = (16, 21, 60, 104)
    three = len(DecodeWan(vae).blocks(shape)) // 21 * 3
    (lean, *_), (stacked, *_) = (decode_peaks(DecodeWan(vae, is_lean=is_lean), shape, lambda _: three)
                                 for is_lean in (True, False))  # fmt: skip
    assert lean < 0.5 * stacked and stacked - lean > 1500 * MIB


@pytest.mark.parametrize("side", [1024, 2048])
def test_decoding_a_picture_takes_what_was_estimated(side: int) -> None:
    vae, config = made_of_shapes(AutoencoderKL, "dummy:flux-dev")
    peak, end, _ = decode_peaks(Decode2d(vae), (16, side // 8, side // 8), lambda blocks: blocks)
    copied = (256 + 256) * 2 * STRIPE_PIXELS
    estimate = picture_decode_bytes(config, side * side)
    assert end < peak < estimate
    assert 0.8 * estimate < peak + copied < 1.2 * estimate


@pytest.mark.parametrize("name", ["wan", "flux", "zimage"])
def test_a_denoise_block_takes_what_was_estimated(name: str) -> None:
    """Counted on a CPU over a tiny model: as many tensors of all tokens as a large one has."""
    family = tiny_family(name)
    sizes: dict[str, Any] = (
        {"width": 96, "height": 96, "num_frames": 9} if name == "wan" else {"width": 64, "height": 64}
    )
    request = media_request(family, **sizes)
    with live_bytes() as live:
        carry = family.denoise.open(rows_for(family, [request], 1))
        peak = 0
        for block in family.denoise.blocks(family.denoise_shape(request)):
            kept = storages(carry) - carry.tensors["x"].nbytes
            live.peak = live.now
            block.run(carry)
            peak = max(peak, live.peak - kept)
    num_branches, num_tokens, width = carry.tensors["x"].shape
    tokens = num_branches * num_tokens
    if name == "wan":
        estimate = clip_denoise_bytes(family.edge.files.config("transformer"), tokens, itemsize=4)
    else:
        estimate = picture_denoise_bytes(width, tokens, itemsize=4)
    assert 0.6 * estimate < peak < estimate


def test_the_feed_forward_of_many_tokens_is_never_held_whole() -> None:
    width, hidden, tokens = 64, 448, 5 * FFN_TOKENS + 3
    with torch.device("meta"):
        ffn = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
    with live_bytes() as live:
        x = torch.empty(1, tokens, width, device="meta")
        assert wan_blocks._fed_forward(ffn, x).shape == x.shape
    assert live.peak < 3 * x.nbytes + 2 * FFN_TOKENS * hidden * 4
    assert live.peak < tokens * hidden * 4


def test_a_part_of_the_tokens_gives_what_all_give(monkeypatch: pytest.MonkeyPatch) -> None:
    ffn = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))
    x = torch.randn(2, 37, 8)
    with torch.no_grad():
        whole = ffn(x)
        monkeypatch.setattr(wan_blocks, "_is_spared", lambda x: True)
        monkeypatch.setattr(wan_blocks, "FFN_TOKENS", 16)
        assert torch.allclose(wan_blocks._fed_forward(ffn, x), whole, atol=1e-6)


@pytest.mark.parametrize("model", ["dummy:wan-1.3b", "dummy:flux-dev", "dummy:z-image"])
def test_a_footprint_follows_the_limits(model: str) -> None:
    edge = open_edge(resolve(model).path)
    edge.restrict(1024 * 1024, 81, 832 * 480)
    small = edge.footprint(2)
    edge.restrict(2048 * 2048, 161, 1280 * 720)
    large = edge.footprint(2)
    assert large.activation_bytes > 1.5 * small.activation_bytes
    assert large.graph_bytes == small.graph_bytes, "what is captured is of the default size"
    assert 256 * MIB < large.graph_bytes < 3072 * MIB


def test_live_bytes_count_views_once_and_what_is_dropped_not_at_all() -> None:
    with live_bytes() as live:
        x = torch.empty(1000, device="meta")
        view = x.view(10, 100)
        del x
        assert (live.now, live.peak) == (4000, 4000)
        y = view + 1
        del view
        assert (live.now, live.peak) == (4000, 8000) and y.shape == (10, 100)
    assert isinstance(live, LiveBytes)
