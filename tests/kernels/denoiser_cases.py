"""The cases of operations for denoisers: inputs, and results in float64, token by token."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WIDTH = 24  # no power of two
# What `rows` may stand for in x [2, 3, WIDTH]: nothing, one row for all, one a segment, one a token.
ROWS: tuple[list[int] | None, ...] = (None, [2], [1, 0], [0, 2, 1, 1, 0, 2])
NO_ROWS_TABLE = 2  # without rows there is a row a segment


def check_modulated_norm(backend: Any) -> None:
    x, weight, bias = torch.randn(2, 3, WIDTH) * 2 + 1, torch.randn(WIDTH), torch.randn(WIDTH)
    for rows in ROWS:
        scale, shift, chosen = modulation(rows)
        index = None if rows is None else torch.tensor(rows)
        for w, b in ((None, None), (weight, None), (weight, bias)):
            plain = plain_layer_norm(x, w, b)
            close(backend.layer_norm(x, 1e-5, weight=w, bias=b), plain)
            expected = plain * (1 + dealt(scale, chosen)) + dealt(shift, chosen)
            close(backend.layer_norm(x, 1e-5, scale, shift, index, weight=w, bias=b), expected)
        for w in (None, weight):
            plain = plain_rms_norm(x, w)
            close(backend.rms_norm(x, w, 1e-5), plain)
            close(backend.rms_norm(x, w, 1e-5, scale, index), plain * (1 + dealt(scale, chosen)))
    scale, _, chosen = modulation(None)
    close(backend.layer_norm(x, 1e-5, scale), plain_layer_norm(x, None, None) * (1 + dealt(scale, chosen)))
    assert backend.layer_norm(x[:, :0], 1e-5).shape == (2, 0, WIDTH)


def check_gated_residual(backend: Any) -> None:
    x, update, weight = torch.randn(2, 3, WIDTH), torch.randn(2, 3, WIDTH) * 3, torch.randn(WIDTH)
    before = x.clone()
    close(backend.add(x, update), x.double() + update)
    for rows in ROWS:
        gate, _, chosen = modulation(rows)
        index = None if rows is None else torch.tensor(rows)
        close(backend.add(x, update, gate, index), x.double() + dealt(gate, chosen) * update)
        for w in (None, weight):
            normed = plain_rms_norm(update, w)
            close(backend.add_normed(x, update, w, 1e-5), x.double() + normed)
            close(backend.add_normed(x, update, w, 1e-5, gate, index), x.double() + dealt(gate, chosen) * normed)
    assert torch.equal(x, before)


def check_head_rope(backend: Any) -> None:
    num_segments, length, heads, size = 2, 5, 3, 12
    wide = torch.randn(num_segments, length, heads + 2, size)
    weights = (None, torch.randn(size), torch.randn(heads * size))
    for shared, weight, is_turned in itertools.product((True, False), weights, (True, False)):
        angles = torch.randn(1 if shared else num_segments, length, size // 2) * 9
        rope = torch.polar(torch.ones_like(angles), angles) if is_turned else None
        x = wide.clone()[:, :, 1 : heads + 1]
        expected = x.double()
        if weight is not None:
            if weight.numel() == size:
                expected = plain_rms_norm(expected, weight)
            else:
                expected = plain_rms_norm(expected.flatten(2), weight).unflatten(2, (heads, size))
        if is_turned:
            cos, sin = angles.double().cos()[:, :, None], angles.double().sin()[:, :, None]
            a, b = expected[..., 0::2], expected[..., 1::2]
            expected = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        close(backend.rotate(x, rope, weight, 1e-5), expected)


def modulation(rows: list[int] | None) -> tuple[Tensor, Tensor, list[int]]:
    """Two strided parts [R, WIDTH] of one projection, and the row of each of the six tokens."""
    chosen = rows if rows is not None else list(range(NO_ROWS_TABLE))
    parts = torch.randn(NO_ROWS_TABLE if rows is None else 3, 3 * WIDTH)
    tokens = [row for row in chosen for _ in range(6 // len(chosen))]
    return parts[:, :WIDTH], parts[:, WIDTH : 2 * WIDTH], tokens


def dealt(table: Tensor, chosen: list[int]) -> Tensor:
    return torch.stack([table[row] for row in chosen]).view(2, 3, WIDTH).double()


def plain_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    centred = x.double() - x.double().mean(-1, keepdim=True)
    normed = centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def plain_rms_norm(x: Tensor, weight: Tensor | None) -> Tensor:
    normed = x.double() * torch.rsqrt((x.double() ** 2).mean(-1, keepdim=True) + 1e-5)
    return normed if weight is None else normed * weight


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=2e-5, atol=2e-5)


DENOISER_CASES: dict[str, Callable[[Any], None]] = {
    "modulated_norm": check_modulated_norm,
    "gated_residual": check_gated_residual,
    "head_rope": check_head_rope,
}
