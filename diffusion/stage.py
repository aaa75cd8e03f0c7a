"""What a family's stage is: a list of blocks over a carry, so that any part of a step is a bounded piece of work.

    carry = stage.open(rows)
    for block in stage.blocks(shape):
        block.run(carry)
    results = stage.close(carry, rows)

The runner may stop between any two blocks; what lives there is in `carry.tensors`, which it then copies into leased
memory. Stages know nothing of leases, states, scheduling, or how many rows are worth a batch.

What a runner may rely on, so that blocks can be captured as CUDA graphs over slots that hold the carry:

- `open` puts into `carry.facts` the batch's layout: hashable, and equal for equal layouts. The names, shapes, strides
  and types of the carry's tensors depend on the facts and on how many blocks have run, on nothing else.
- A block whose `is_capturable` is set reads the carry's tensors, its facts and the model's weights, and nothing else:
  no row, no cache that may forget, no value on the host. What was captured is right for whatever the tensors hold.
- Such a block puts new tensors into the carry under names that were there before. It never writes into one, and
  leaves those that it does not change as they are.
- On CUDA neither `open`, nor a block, nor `close` waits for the device. Constants of a layout are made on the device by
  the launch that first needs them; launches of one lane are ordered.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from hemiola.core.step import Work

_CONV_UNIT = 4096
_MACS_PER_ELEMENT = 650


def conv_work(macs: int, elements: int) -> Work:
    """The work of a block of convolutions, in `Work.pixels`: units of 4096 multiply-adds.

    An element that is read or written weighs as much as 650 multiply-adds, as measured on a CPU core over the decoders
    of the built-in models: 40 ns a unit, 6.5 ns an element. The cost model learns what a unit costs elsewhere.
    """
    return Work(rows=1, blocks=1, pixels=-(-(macs + _MACS_PER_ELEMENT * elements) // _CONV_UNIT))


@dataclass(slots=True)
class Carry:
    """What lives between two blocks of a step.

    Fields:
        tensors: by name. Blocks replace them; they write into one only where its stage says so.
        facts: of the host, fixed by `open`: shapes, packing. Hashable, and equal for equal layouts. Never a tensor.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: Any = None


@dataclass(frozen=True, slots=True)
class Block:
    """One bounded piece of a step. `work` is that of one row alone; rows of one batch may differ in it.

    `is_capturable`: see the module's docstring. `is_kept`: it leaves tensors in the carry that later blocks write into,
    so that they shall lie in leased memory from the first on, also where the step is launched in one group.
    """

    run: Callable[[Carry], None]
    work: Work
    is_capturable: bool = False
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Row of an encode stage: token ids without padding, and their hidden states if another model computed them."""

    token_ids: tuple[int, ...]
    hidden_states: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Noisy:
    """Row of a denoise stage.

    Fields:
        latents: float32 [channels, frames, height, width].
        timestep: of the row's schedule, a scalar on the model's device.
        conditions: what the encode stage made of the prompt and, with guidance, of the negative prompt.
        num_padding: padding tokens that diffusers would feed after each prompt.
        guidance_scale: as asked.
    """

    latents: Tensor
    timestep: Tensor
    conditions: tuple[Tensor, ...]
    num_padding: tuple[int, ...]
    guidance_scale: float


@dataclass(frozen=True, slots=True)
class Clean:
    """Row of a decode stage: float32 latents [channels, frames, height, width]."""

    latents: Tensor


R = TypeVar("R", Prompt, Noisy, Clean, contravariant=True)


class Stage(Protocol, Generic[R]):
    """One of encode, denoise, decode. `shape` is whatever hashable the family describes a row by."""

    name: str

    def batch_key(self, shape: Any) -> Hashable:
        """Rows of equal keys may share a step, and have equally many blocks."""
        ...

    def blocks(self, shape: Any) -> Sequence[Block]:
        """The blocks of a row of that shape; in a batch, those of any row serve all."""
        ...

    def carried(self, shape: Any) -> Mapping[str, int]:
        """For each tensor of the carry, the most bytes that a row ever adds to it."""
        ...

    def open(self, rows: Sequence[R]) -> Carry:
        """What the first block starts from."""
        ...

    def close(self, carry: Carry, rows: Sequence[R]) -> Sequence[Tensor]:
        """One result a row. Encode: a condition. Denoise: the guided prediction, float32, of the latents' shape.
        Decode: frames [num_frames, height, width, 3], float32 in [0, 1], that nobody else holds."""
        ...
