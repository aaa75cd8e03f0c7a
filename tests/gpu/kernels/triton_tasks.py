"""What Triton kernels do in models, at the shapes of real ones: inputs, and the call that takes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """Fields:
    operation: its name.
    inputs: makes them for so many tokens, in float32 where they may be of any floating type.
    call: of a backend class and its inputs, which it leaves as they are; the result.
    """

    operation: str
    inputs: Callable[[int], Inputs]
    call: Callable[..., Tensor]

    def run(self, backend: Any, inputs: Inputs, dtype: torch.dtype) -> Tensor:
        """Computes in a dtype."""
        return self.call(backend, *(x.to(dtype) if x.is_floating_point() else x for x in inputs))


def rounded(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """What a dtype can hold of them, in float32."""
    return tuple(x.to(dtype).float() if x.is_floating_point() else x for x in inputs)


def _norm_of_a_sum(backend: Any, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    stream = residual.clone()
    return torch.cat((backend(weight, 1e-6).add(stream, x), stream))


def _norm_of_heads(backend: Any, qkv: Tensor, weight: Tensor) -> Tensor:
    written = qkv.clone()
    backend(weight, 1e-6).in_place(written[:, :40])
    return written


def _rotated_halves(backend: Any, qkv: Tensor, positions: Tensor) -> Tensor:
    written = qkv.clone()
    rope = backend(torch.full((48,), 2.0**-12, device=qkv.device), 1.5)
    rope.rotate(written[:, :40], rope.at(positions, torch.float32))
    return written


def _normed_and_rotated(backend: Any, qkv: Tensor, positions: Tensor, weight: Tensor) -> Tensor:
    written = qkv.clone()
    rope = backend(torch.full((64,), 2.0**-12, device=qkv.device))
    rope.rotate(written[:, :40], rope.at(positions, torch.float32), rope.head_norm(weight, 1e-6))
    return written


def _stored(backend: Any, qkv: Tensor, places: Tensor) -> Tensor:
    pages = torch.zeros(400, 2, 2, 16, 8, 128, dtype=qkv.dtype, device=qkv.device)
    backend.store(pages[:, 1], qkv[:, 32:].view(-1, 2, 8, 128), places // 16, places % 16)
    return pages


def _randn(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


def _below(limit: int, count: int) -> Tensor:
    return torch.randint(limit, (count,), device="cuda")


def _rope(num_segments: int, num_tokens: int) -> Tensor:
    angles = _randn(num_segments, num_tokens, 64) * 9
    return torch.polar(torch.ones_like(angles), angles)


TASKS: dict[str, Task] = {
    "norm of tokens": Task(
        "rms_norm", lambda n: (_randn(n, 4096), _randn(4096)), lambda backend, x, weight: backend(weight, 1e-6)(x)
    ),
    "norm of a sum": Task("rms_norm", lambda n: (_randn(n, 2880), _randn(n, 2880), _randn(2880)), _norm_of_a_sum),
    "norm of heads in place": Task("rms_norm", lambda n: (_randn(n, 48, 128), _randn(40, 128)), _norm_of_heads),
    "rotated halves": Task("rope", lambda n: (_randn(n, 48, 96), torch.arange(n, device="cuda")), _rotated_halves),
    "normed and rotated halves": Task(
        "rope",
        lambda n: (_randn(n, 48, 128), torch.arange(n, device="cuda"), _randn(40, 128)),
        _normed_and_rotated,
    ),
    "gated activation": Task(
        "gated_activation",
        lambda n: (_randn(n, 2 * 2880),),
        lambda backend, gate_up: backend("gelu_pytorch_tanh")(gate_up.clone()),
    ),
    "gated activation apart": Task(
        "gated_activation",
        lambda n: (_randn(1, n, 10240), _randn(1, n, 10240)),
        lambda backend, gate, up: backend("silu").apart(gate.clone(), up),
    ),
    "store": Task("kv_store", lambda n: (_randn(n, 48, 128), torch.randperm(400 * 16, device="cuda")[:n]), _stored),
    "modulated layer norm": Task(  # a ragged pack: a row for each token
        "modulated_norm",
        lambda n: (_randn(1, n, 3072) + 1, _randn(4, 6 * 3072), _below(4, n)),
        lambda backend, x, table, rows: backend.layer_norm(x, 1e-6, *table.chunk(6, -1)[:2], rows),
    ),
    "modulated rms norm": Task(  # a row for each segment
        "modulated_norm",
        lambda n: (_randn(3, n, 3840), _randn(3840), _randn(3, 4 * 3840)),
        lambda backend, x, weight, table: backend.rms_norm(x, weight, 1e-5, table.chunk(4, -1)[2]),
    ),
    "gated residual": Task(
        "gated_residual",
        lambda n: (_randn(2, n, 5120), _randn(2, n, 5120), _randn(3, 5120), _below(3, 1)),
        lambda backend, x, update, gate, rows: backend.add(x, update, gate, rows),
    ),
    "gated residual of a norm": Task(
        "gated_residual",
        lambda n: (_randn(1, n, 3840), _randn(1, n, 3840), _randn(3840), _randn(1, 4 * 3840)),
        lambda backend, x, update, weight, table: backend.add_normed(x, update, weight, 1e-5, table.chunk(4, -1)[1]),
    ),
    "heads": Task(
        "head_rope",
        lambda n: (_randn(2, n, 30, 128), _rope(1, n), _randn(128)),
        lambda backend, x, rope, weight: backend.rotate(x.clone(), rope, weight),
    ),
    "heads normed together": Task(
        "head_rope",
        lambda n: (_randn(2, n, 40, 128), _rope(2, n), _randn(5120)),
        lambda backend, x, rope, weight: backend.rotate(x.clone(), rope, weight),
    ),
}
