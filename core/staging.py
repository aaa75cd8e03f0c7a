"""Copies between host and device that nobody waits for. On a CPU there is nothing to copy.

A copy from or to pageable memory makes the host wait for the stream; these go through pinned memory, which torch keeps
until the copy behind it is over.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, behind what is enqueued on the current stream."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def ints_to_device(ints: Sequence[int], device: torch.device) -> Tensor:
    """Integers as an int64 tensor on the device."""
    return to_device(torch.tensor(ints, dtype=torch.int64), device)


def to_host(tensor: Tensor) -> Tensor:
    """A device's tensor on the host; its values are there once what is enqueued on the current stream is complete."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
