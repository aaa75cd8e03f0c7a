"""Frames one after another, for convolutions over time that copy nothing: what `vae_wan` does where memory counts.

A map of a chunk at full size is the unit that fills a device: 293 MiB for four frames of 832x480 in 96 channels of two
bytes. Stacking three shifted chunks takes three of them, norms in float32 four, and the library's own copies in another
layout as much as a convolution reads and writes. Here frames are normed, grown and convolved one at a time.

Shape suffixes: R rows, T frames of the chunk, S = T + 2 frames seen, C channels, H and W.
"""

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.nn.functional import interpolate

PAST = 2
"""Frames that a convolution over three of them sees beside the present one."""


def seen_frames(
    x_RTCHW: Tensor, caches: list[Tensor | None], index: int, norm: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """[R, S, C, H, W]: what is remembered, then the frames, normed. Remembers the last ones in `caches[index]`.

    A cache that is there is written over; otherwise there is one from now on. Before the first frame there is nothing.
    """
    num_rows, num_frames, *size = x_RTCHW.shape
    seen = x_RTCHW.new_empty(num_rows, PAST + num_frames, *size)
    past = caches[index]
    if past is None:
        seen[:, :PAST].zero_()
    else:
        seen[:, :PAST].copy_(past)
    for i in range(num_frames):
        frame = x_RTCHW[:, i]
        seen[:, PAST + i].copy_(frame if norm is None else norm(frame))
    last = seen[:, -PAST:]
    caches[index] = last.clone() if past is None else past.copy_(last)
    return seen


def grown(x_CHW: Tensor) -> Tensor:
    """Twice the sides. Copies values, so it is as exact in any type."""
    return interpolate(x_CHW.unsqueeze(0), scale_factor=2.0, mode="nearest-exact")[0]


def written(frames: Iterable[Tensor], num_rows: int, num_frames: int) -> Tensor:
    """[R, T, C, H, W] from frames as they are computed: no two of them are there besides."""
    whole: Tensor | None = None
    for i, frame in enumerate(frames):
        if whole is None:
            whole = frame.new_empty(num_rows, num_frames, *frame.shape)
        whole[i // num_frames, i % num_frames].copy_(frame)
        del frame
    assert whole is not None, "there is a frame"
    return whole
